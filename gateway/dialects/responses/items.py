"""Ids and items of a response: what its input and its answer look like as the API's items.

Every id follows from the response's own and the item's place, so that the same answer always has
the same items.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from inference.events import Likely, TokenLogprob
from inference.fold import Answer
from inference.request import (
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

Item = dict[str, Any]

_RESPONSE = "resp_"
_UUID = re.compile(r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}")
_ITEM = re.compile(r"(?:msg|rs|fc|fco|mcp|item)_([0-9a-f]{32})_(in|out)_(\d{1,6})")
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "mcp_call": "mcp",
}


def public_id(uuid: str) -> str:
    """Return the id that callers see of the response with this UUID."""
    return _RESPONSE + uuid


def read_id(text: str) -> str | None:
    """Return the UUID of a response's id, with or without its prefix; None if it is none."""
    bare = text.removeprefix(_RESPONSE).lower()
    return _hyphened(bare.replace("-", "")) if _UUID.fullmatch(bare) else None


def _hyphened(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def created_at_s(uuid: str) -> float:
    """Return when a response was asked for, in Unix time: its id, a UUID of version 7, says it."""
    return int(uuid.replace("-", "")[:12], 16) / 1000


class Place(NamedTuple):
    """Where an item stands: in the input or the output of a response (a UUID), counted from 0."""

    response_id: str
    in_output: bool
    number: int


def locate(item_id: str) -> Place | None:
    """Return where an item stands, by its id; None if it is no item's of ours."""
    if found := _ITEM.fullmatch(item_id):
        digits, side, number = found.groups()
        return Place(_hyphened(digits), side == "out", int(number))
    return None


def item_id(kind: str, response_id: str, index: int, *, side: str = "out") -> str:
    """Return the id of an item: `kind` is its type, `side` "in" or "out"."""
    prefix = _PREFIXES.get(kind, "item")
    return f"{prefix}_{response_id.replace('-', '')}_{side}_{index}"


class Look(NamedTuple):
    """What a request says about how its answer's items look."""

    reasoning: bool = True
    summary: bool = False

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Look:
        """Read a request as it was sent."""
        asked = body.get("reasoning") or {}
        return cls(
            reasoning=body.get("include_reasoning") is not False,
            summary=bool(asked.get("summary") or asked.get("generate_summary")),
        )


def output_items(
    response_id: str, answer: Answer, body: Mapping[str, Any], *, status: str = "completed"
) -> list[Item]:
    """Return the items of an answer.

    `response_id` is a UUID, `body` the request as it was sent, and `status` that of the last part's
    item: those before it are completed. A call that the server ran and its result are one item,
    which has a status of its own.
    """
    look, items = Look.of(body), list[Item]()
    scores = iter(answer.logprobs)
    results = {
        part.call_id: part for part in answer.parts if isinstance(part, ServerToolResultPart)
    }
    for left, part in zip(range(len(answer.parts) - 1, -1, -1), answer.parts, strict=True):
        index = len(items)
        match part:
            case TextPart(text=text):
                item = message_item(response_id, index, text, logprobs=next(scores, ()))
            case ThinkingPart(text=text) if look.reasoning:
                item = reasoning_item(response_id, index, text, summary=look.summary)
            case ThinkingPart():
                continue
            case ToolCallPart():
                item = call_item(response_id, index, part)
            case ServerToolCallPart():
                items.append(mcp_item(response_id, index, part, results.get(part.id)))
                continue
            case ServerToolResultPart():
                continue
        items.append(item | {"status": "completed" if left else status})
    return items


def message_item(
    response_id: str, index: int, text: str, logprobs: Sequence[TokenLogprob] = ()
) -> Item:
    """Return the item of a piece of text."""
    return begun_message(response_id, index) | {
        "status": "completed",
        "content": [text_part(text, logprobs)],
    }


def begun_message(response_id: str, index: int) -> Item:
    """Return the item of a text that has not begun."""
    return {
        "id": item_id("message", response_id, index),
        "type": "message",
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }


def text_part(text: str, logprobs: Sequence[TokenLogprob] = ()) -> dict[str, Any]:
    """Return a message's only part."""
    return {
        "type": "output_text",
        "text": text,
        "annotations": [],
        "logprobs": [token_logprob(each) for each in logprobs],
    }


def token_logprob(scored: TokenLogprob) -> dict[str, Any]:
    """Return the log probabilities of one token's place."""
    return _likely(scored.taken) | {"top_logprobs": [_likely(each) for each in scored.likeliest]}


def _likely(likely: Likely) -> dict[str, Any]:
    return {"token": likely.token, "bytes": list(likely.data), "logprob": likely.logprob}


def reasoning_item(response_id: str, index: int, text: str, *, summary: bool) -> Item:
    """Return the item of a piece of reasoning: as its own summary, or as it is."""
    item = begun_reasoning(response_id, index) | {"status": "completed"}
    if summary:
        return item | {"summary": [{"type": "summary_text", "text": text}]}
    return item | {"content": [{"type": "reasoning_text", "text": text}]}


def begun_reasoning(response_id: str, index: int) -> Item:
    """Return the item of reasoning that has not begun."""
    return {
        "id": item_id("reasoning", response_id, index),
        "type": "reasoning",
        "status": "in_progress",
        "summary": [],
    }


def call_item(response_id: str, index: int, call: ToolCallPart) -> Item:
    """Return the item of a call of a tool. Without hyphens its id is short enough for any API."""
    return {
        "id": item_id("function_call", response_id, index),
        "type": "function_call",
        "status": "completed",
        "call_id": f"call_{call.id.replace('-', '')}",
        "name": call.name,
        "arguments": call.arguments,
    }


def mcp_item(
    response_id: str, index: int, call: ServerToolCallPart, result: ServerToolResultPart | None
) -> Item:
    """Return the item of a call that the server ran; without a result it was broken off."""
    said = result.text if result else None
    failed = result is not None and result.is_error
    status = "incomplete" if result is None else "failed" if failed else "completed"
    return {
        "id": item_id("mcp_call", response_id, index),
        "type": "mcp_call",
        "status": status,
        "server_label": call.server,
        "name": call.name,
        "arguments": call.arguments,
        "output": None if failed else said,
        "error": _tool_error(said or "") if failed else None,
        "approval_request_id": None,
    }


def _tool_error(text: str) -> dict[str, Any]:
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}


def input_items(response_id: str, given: object) -> list[Item]:
    """Return a request's `input`, as it was sent, as items that can be listed and told again.

    Each has an id, its own or one that follows from its place.
    """
    if not given:
        return []
    items: list[Item] = given if isinstance(given, list) else [{"role": "user", "content": given}]
    return [_listed(response_id, index, item) for index, item in enumerate(items)]


def _listed(response_id: str, index: int, item: Item) -> Item:
    kind = item.get("type") or "message"
    listed: Item = {"id": item_id(kind, response_id, index, side="in"), "status": "completed"}
    listed |= item | {"type": kind}
    if kind == "message" and isinstance(item.get("content"), str):
        text = item["content"]
        said = item.get("role") == "assistant"
        listed["content"] = [text_part(text) if said else {"type": "input_text", "text": text}]
    return listed
