"""From the canonical request to the fields of a message of Anthropic's API. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from inference.arguments import MALFORMED
from inference.backends.raw_edits import COUNTED
from inference.backends.upstream_prompt import check_carried, prepared, without_nulls
from inference.catalogue import ModelEntry
from inference.request import (
    CacheMark,
    GenerationRequest,
    ImagePart,
    Part,
    Role,
    TextPart,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)
from inference.upstreams import UpstreamOptions

API = "Anthropic's API"

_CARRIED = ("top_k",)
_CACHED = {"cache_control": {"type": "ephemeral"}}
_FORBIDDEN_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")

Block = dict[str, Any]


def message_fields(
    request: GenerationRequest, entry: ModelEntry, options: UpstreamOptions
) -> dict[str, Any]:
    """Return a streamed message's fields.

    Raises `TandemError` (INVALID_REQUEST) naming what it cannot carry.
    """
    check_carried(request, {*_CARRIED, *options.parameters}, entry, API)
    request = prepared(request, entry, options)
    sampling = request.sampling
    max_tokens = sampling.max_tokens
    if sampling.cut_to_context:
        max_tokens = min(max_tokens, options.default_max_tokens)
    return without_nulls(
        {
            **_prompt_fields(request, entry),
            "max_tokens": max_tokens,
            "stream": True,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "stop_sequences": list(sampling.stop) or None,
            **options.parameters,
        }
    )


def count_fields(
    request: GenerationRequest, entry: ModelEntry, options: UpstreamOptions
) -> dict[str, Any]:
    """Return the fields of a count of what `message_fields` would send as the prompt."""
    counted = {name: value for name, value in options.parameters.items() if name in COUNTED}
    return without_nulls(_prompt_fields(prepared(request, entry, options), entry) | counted)


def _prompt_fields(request: GenerationRequest, entry: ModelEntry) -> dict[str, Any]:
    system, messages = _conversation(request)
    fields: dict[str, Any] = {
        "model": entry.upstream_model or entry.id,
        "system": system or None,
        "messages": messages,
        "thinking": _thinking(request, entry),
        **_tool_fields(request),
    }
    if not request.sampling.max_tokens and request.cache_mark is None:
        # There is nothing to do but to fill the cache, and it is filled up to marks only.
        fields |= _CACHED
    if request.output_schema is not None:
        wanted = {"type": "json_schema", "schema": request.output_schema}
        fields["output_config"] = {"format": wanted}
    return fields


def _conversation(request: GenerationRequest) -> tuple[list[Block], list[dict[str, Any]]]:
    """Return the system prompt and the turns; one without anything to say is left out."""
    system: list[Block] = []
    messages: list[dict[str, Any]] = []
    for number, message in enumerate(request.messages):
        blocks = list(_blocks(message.parts, number, request.cache_mark))
        if message.role is Role.SYSTEM and not messages:
            system += blocks
        elif blocks:
            messages.append({"role": str(message.role), "content": blocks})
    return system, messages


def _blocks(parts: Iterable[Part], number: int, mark: CacheMark | None) -> Iterator[Block]:
    """Yield the blocks of one turn, the marked one with its breakpoint."""
    for place, part in enumerate(parts):
        block = _block(part)
        if block is None:
            continue
        if mark is not None and (mark.message, mark.part) == (number, place):
            block |= _CACHED
        yield block


def _block(part: Part) -> Block | None:
    """Return a part's block, or None if there is none.

    Text of nothing but space is refused there, and so is a thought without its signature: only
    the model that had it could read it.
    """
    match part:
        case TextPart(text=text) if text.strip():
            return {"type": "text", "text": text}
        case ImagePart(media_type=media_type, data=data):
            source = {
                "type": "base64",
                "media_type": media_type,
                "data": base64.b64encode(data).decode(),
            }
            return {"type": "image", "source": source}
        case ToolCallPart(id=call_id, name=name, arguments=arguments):
            return {
                "type": "tool_use",
                "id": _id(call_id),
                "name": name,
                "input": _input(arguments),
            }
        case ToolResultPart():
            return _result(part)
    return None


def _input(arguments: str) -> dict[str, Any]:
    """Return the arguments as they were written: decoding the values would round numbers."""
    try:
        return msgspec.json.decode(arguments or "{}", type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return {MALFORMED: arguments}


def _result(part: ToolResultPart) -> Block:
    result: Block = {"type": "tool_result", "tool_use_id": _id(part.call_id)}
    if shown := [block for inner in part.parts if (block := _block(inner))]:
        result["content"] = shown
    if part.is_error:
        result["is_error"] = True
    return result


def _id(call_id: str) -> str:
    """Return a call's id in the letters that ids may have there."""
    return _FORBIDDEN_IN_IDS.sub("_", call_id)


def _tool_fields(request: GenerationRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    tools = [
        {
            "name": tool.name,
            "input_schema": {"type": "object"} | tool.schema,
            **({"description": tool.description} if tool.description else {}),
            **({"strict": True} if tool.strict else {}),
        }
        for tool in request.tools
    ]
    mark = request.cache_mark
    if mark is not None and mark.message < 0:
        tools[-1] |= _CACHED
    return {"tools": tools, "tool_choice": _choice(request.tool_choice)}


def _choice(choice: ToolChoice) -> dict[str, Any]:
    if choice.mode is ToolMode.NONE:
        return {"type": "none"}
    kind = "tool" if choice.mode is ToolMode.NAMED else str(choice.mode)
    chosen: dict[str, Any] = {"type": kind}
    if choice.name is not None:
        chosen["name"] = choice.name
    if not choice.parallel:
        chosen["disable_parallel_tool_use"] = True
    return chosen


def _thinking(request: GenerationRequest, entry: ModelEntry) -> dict[str, Any] | None:
    """Return the switch of reasoning, or None where the model's own default is what is wanted."""
    if not request.thinking:
        is_on = entry.reasoning == "default_on"
        return {"type": "disabled"} if is_on and request.thinking is False else None
    budget = request.thinking_budget_tokens
    if budget is None:
        return {"type": "adaptive"}
    if any(isinstance(part, ToolResultPart) for part in request.messages[-1].parts):
        # With a budget, the turn that called must begin with its thought, which cannot be sent.
        return None
    budget = max(1, min(budget, request.sampling.max_tokens - 1))
    return {"type": "enabled", "budget_tokens": budget}
