"""From the canonical request to the fields of a chat completion. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inference.backends.upstream_prompt import check_carried, prepared, without_nulls
from inference.backends.vllm_chat import chat_messages
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.request import GenerationRequest, Role, Tool, ToolChoice, ToolMode
from inference.upstreams import UpstreamOptions

API = "OpenAI's API"

MAX_STOPS = 4
"""OpenAI takes no more; the others end the answer here."""

_CARRIED = ("seed", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs")
_EXTRA_SAMPLING = ("top_k", "min_p", "min_tokens", "repetition_penalty")
_REASONING_KEYS = ("reasoning_content", "reasoning")
_PLAIN_OBJECT = {"type": "object"}


def chat_fields(
    request: GenerationRequest, entry: ModelEntry, options: UpstreamOptions
) -> dict[str, Any]:
    """Return a streamed chat completion's fields.

    Raises `TandemError` (INVALID_REQUEST) naming what it cannot carry.
    """
    check_carried(request, {*_CARRIED, *options.accepts, *options.parameters}, entry, API)
    if not request.sampling.max_tokens:
        raise TandemError(
            ErrorCode.INVALID_REQUEST,
            f"max_tokens: the model '{entry.id}' is served through {API}, which cannot fill a "
            "cache without an answer: must be at least 1",
            param="max_tokens",
        )
    request = prepared(request, entry, options)
    return without_nulls(
        {
            "model": entry.upstream_model or entry.id,
            "messages": list(_messages(request, options)),
            "stream": True,
            "stream_options": {"include_usage": True},
            **_sampling_fields(request, options),
            **_tool_fields(request),
            **_format_fields(request),
            **_extra_fields(request, options),
            **options.parameters,
        }
    )


def _messages(request: GenerationRequest, options: UpstreamOptions) -> Iterator[dict[str, Any]]:
    for message in chat_messages(request.messages):
        thought = message.pop("reasoning", None)
        for key in _REASONING_KEYS if thought else ():
            if key in options.accepts:
                message[key] = thought
        if message["role"] == Role.ASSISTANT and not message.keys() & {"content", "tool_calls"}:
            message["content"] = ""
        if message["role"] == "tool":
            message.pop("name", None)
        yield message


def _sampling_fields(request: GenerationRequest, options: UpstreamOptions) -> dict[str, Any]:
    sampling = request.sampling
    fields: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stop": list(sampling.stop[:MAX_STOPS]) or None,
        "seed": sampling.seed,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "logit_bias": sampling.logit_bias,
    }
    if not sampling.cut_to_context:
        fields[options.max_tokens_field] = sampling.max_tokens
    if sampling.logprobs is not None:
        fields |= {"logprobs": True, "top_logprobs": sampling.logprobs}
    return fields


def _extra_fields(request: GenerationRequest, options: UpstreamOptions) -> dict[str, Any]:
    """Return what this server takes beyond OpenAI's own fields."""
    fields: dict[str, Any] = {name: getattr(request.sampling, name) for name in _EXTRA_SAMPLING}
    fields["cache_salt"] = request.cache_salt
    if request.thinking is not None:
        # Templates know the switch under either name.
        switch = {"enable_thinking": request.thinking, "thinking": request.thinking}
        fields["chat_template_kwargs"] = switch
    return {name: value for name, value in fields.items() if value and name in options.accepts}


def _tool_fields(request: GenerationRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    fields: dict[str, Any] = {
        "tools": [_tool(tool) for tool in request.tools],
        "tool_choice": _choice(request.tool_choice),
    }
    if not request.tool_choice.parallel:
        fields["parallel_tool_calls"] = False
    return fields


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": _PLAIN_OBJECT | tool.schema}
    if tool.description:
        function["description"] = tool.description
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice) -> str | dict[str, Any]:
    match choice.mode:
        case ToolMode.ANY:
            return "required"
        case ToolMode.NAMED:
            return {"type": "function", "function": {"name": choice.name}}
        case ToolMode.NONE:
            return "none"
    return "auto"


def _format_fields(request: GenerationRequest) -> dict[str, Any]:
    schema = request.output_schema
    if schema is None:
        return {}
    if schema == _PLAIN_OBJECT:
        return {"response_format": {"type": "json_object"}}
    named = {"name": "answer", "schema": schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": named}}
