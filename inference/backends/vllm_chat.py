"""From the canonical request to the fields of vLLM's chat request. Pure: vLLM is not imported."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from inference.backends.described_tools import describe_tools, require_format, result_text
from inference.backends.schemas import Schema, check_size
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.request import (
    GenerationRequest,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)

_FORCED = (ToolMode.ANY, ToolMode.NAMED)


def chat_fields(request: GenerationRequest, entry: ModelEntry) -> dict[str, Any]:
    """Return the fields of a chat request. Raises `TandemError` on one that cannot be made.

    Length and priority are not among them: they do not belong to the prompt.
    """
    for tool in request.tools:
        # Templates and parsers walk through every schema.
        check_size(tool.schema, f"tool '{tool.name}'")
    told = request
    if entry.describe_tools:
        told = describe_tools(request, require_format(entry.id, entry.tool_parser))
    fields = {
        "messages": list(chat_messages(told.messages)),
        "stop": list(request.sampling.stop),
        "cache_salt": request.cache_salt,
        "stream": True,
        **_sampling_fields(request, entry),
        **_tool_fields(request, entry),
    }
    if request.output_schema is not None:
        schema = {"name": "answer", "schema": request.output_schema, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.thinking is not None:
        # Templates know the switch under either name.
        switch = {"enable_thinking": request.thinking, "thinking": request.thinking}
        fields["chat_template_kwargs"] = switch
    return fields


def must_call(request: GenerationRequest) -> bool:
    """Say whether the answer has to call a tool."""
    return bool(request.tools) and request.tool_choice.mode in _FORCED


def may_call(request: GenerationRequest) -> bool:
    """Say whether the answer may call a tool."""
    return bool(request.tools) and request.tool_choice.mode is not ToolMode.NONE


def enforced_schemas(request: GenerationRequest) -> Iterator[tuple[str, Schema]]:
    """Yield what the answer must match, each with what it is the schema of."""
    if request.output_schema is not None:
        yield "the output format", request.output_schema
    if may_call(request):
        for tool in request.tools:
            if _is_strict(tool, request):
                yield f"tool '{tool.name}'", tool.schema


def system_first(request: GenerationRequest) -> GenerationRequest:
    """Return the request with all that the system says at its beginning."""
    system = [message for message in request.messages if message.role is Role.SYSTEM]
    if not system:
        return request
    others = [message for message in request.messages if message.role is not Role.SYSTEM]
    first = Message(role=Role.SYSTEM, parts=tuple(part for turn in system for part in turn.parts))
    return msgspec.structs.replace(request, messages=(first, *others))


def chat_messages(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """Yield vLLM's messages: results of tools are messages of their own."""
    names: dict[str, str] = {}
    for message in messages:
        match message.role:
            case Role.ASSISTANT:
                names |= {p.id: p.name for p in message.parts if isinstance(p, ToolCallPart)}
                yield _assistant(message)
            case Role.USER:
                yield from _user(message, names)
            case _:
                yield {"role": "system", "content": _content(message.parts)}


def _assistant(message: Message) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant"}
    texts = [part for part in message.parts if isinstance(part, TextPart)]
    thoughts = [part.text for part in message.parts if isinstance(part, ThinkingPart)]
    calls = [_call(part) for part in message.parts if isinstance(part, ToolCallPart)]
    if texts:
        said["content"] = _content(texts)
    if thoughts:
        said["reasoning"] = "\n".join(thoughts)
    if calls:
        said["tool_calls"] = calls
    return said


def _call(part: ToolCallPart) -> dict[str, Any]:
    function = {"name": part.name, "arguments": part.arguments}
    return {"id": part.id, "type": "function", "function": function}


def _user(message: Message, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield results as they stand; what they show follows after them, before what is said."""
    said: list[Part] = []
    shown: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            if said:
                yield {"role": "user", "content": _content([*shown, *said])}
                said, shown = [], []
            yield _result(part, names)
            shown += [image for image in part.parts if isinstance(image, ImagePart)]
        else:
            said.append(part)
    if shown or said:
        yield {"role": "user", "content": _content([*shown, *said])}


def _result(part: ToolResultPart, names: dict[str, str]) -> dict[str, Any]:
    result = {"role": "tool", "tool_call_id": part.call_id, "content": result_text(part)}
    # Some templates ask for it.
    if name := names.get(part.call_id):
        result["name"] = name
    return result


def _content(parts: Iterable[Part]) -> str | list[dict[str, Any]]:
    match [_content_part(part) for part in parts]:
        case [{"text": str(text)}]:
            return text
        case content:
            return content


def _content_part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ImagePart(media_type=media_type, data=data):
            url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
            return {"type": "image_url", "image_url": {"url": url}}
    raise AssertionError(f"a {type(part).__name__} has no place here")


def _sampling_fields(request: GenerationRequest, entry: ModelEntry) -> dict[str, Any]:
    """Return what the caller set, else the operator, else None: what the model's makers set."""
    sampling, defaults = request.sampling, entry.default_sampling
    top_k = sampling.top_k
    if top_k is None and "top_k" in defaults:
        top_k = int(defaults["top_k"])
    fields = {
        "temperature": _either(sampling.temperature, defaults.get("temperature")),
        "top_p": _either(sampling.top_p, defaults.get("top_p")),
        "top_k": top_k,
        "min_p": _either(sampling.min_p, defaults.get("min_p")),
        "repetition_penalty": _either(
            sampling.repetition_penalty, defaults.get("repetition_penalty")
        ),
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "min_tokens": sampling.min_tokens,
        "seed": sampling.seed,
        "logit_bias": sampling.logit_bias,
    }
    if sampling.logprobs is not None:
        fields |= {"logprobs": True, "top_logprobs": sampling.logprobs}
    return fields


def _either(first: float | None, second: float | None) -> float | None:
    return second if first is None else first


def _tool_fields(request: GenerationRequest, entry: ModelEntry) -> dict[str, Any]:
    if not may_call(request):
        # A tool that must not be called is not shown either: it would only tempt the model.
        return {}
    if not entry.tool_parser:
        raise TandemError(ErrorCode.INVALID_REQUEST, f"{entry.id} cannot call tools")
    return {
        "tools": [_tool(tool, request) for tool in request.tools],
        "tool_choice": _choice(request.tool_choice),
        "parallel_tool_calls": request.tool_choice.parallel,
    }


def _tool(tool: Tool, request: GenerationRequest) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        # Arguments are an object, whether or not the schema says so.
        "parameters": {"type": "object", **tool.schema},
    }
    if _is_strict(tool, request):
        function["strict"] = True
    return {"type": "function", "function": function}


def _is_strict(tool: Tool, request: GenerationRequest) -> bool:
    """Say whether a call's arguments must match the tool's schema.

    Without it, vLLM forces a call but takes any arguments, and beside an output format it lets
    no tool be called at all.
    """
    return tool.strict or must_call(request) or request.output_schema is not None


def _choice(choice: ToolChoice) -> str | dict[str, Any]:
    match choice.mode:
        case ToolMode.ANY:
            return "required"
        case ToolMode.NAMED:
            return {"type": "function", "function": {"name": choice.name}}
    return "auto"
