"""The response object in each of its states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.dialects.responses.items import Item, output_items, public_id
from gateway.errors import shown
from inference.errors import ErrorCode, TandemError
from inference.events import CUT_SHORT, Finished, FinishReason, Usage
from inference.fold import Answer

# The few codes that a response's error may have; everything else is the server's.
_ERROR_CODES = {
    **dict.fromkeys((ErrorCode.INVALID_REQUEST, ErrorCode.PROMPT_TOO_LONG), "invalid_prompt"),
    **dict.fromkeys(
        (
            ErrorCode.RATE_LIMITED,
            ErrorCode.RESOURCE_UNAVAILABLE,
            ErrorCode.SPEND_CAP,
            ErrorCode.BALANCE_EXHAUSTED,
            ErrorCode.OVERLOADED,
        ),
        "rate_limit_exceeded",
    ),
}


# What of an MCP server is told again. Its keys are not.
_MCP_FIELDS = (
    *("type", "server_label", "server_url", "server_description"),
    *("allowed_tools", "require_approval"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a response says apart from its answer.

    `id` is its UUID; `body` is the request's JSON object as it was sent; times are in seconds of
    Unix time. `service_tier` is the one that serves it: "default" or "flex".
    """

    id: str
    created_at_s: float
    model: str
    body: Mapping[str, Any] = field(default_factory=dict)
    background: bool = False
    service_tier: str = "default"
    completed_at_s: float | None = None


def status_of(finished: Finished) -> str:
    """Return the status of a response whose answer ended so."""
    return "incomplete" if finished.reason in CUT_SHORT else "completed"


def render(
    shape: Shape, status: str, *, answer: Answer | None = None, error: TandemError | None = None
) -> dict[str, Any]:
    """Return the response object.

    `status` is one of queued, in_progress, completed, incomplete, failed and cancelled; `error` is
    for failed. The answer of one that did not complete may be there as far as it came.
    """
    if answer is None:
        return respond(shape, status, error=error)
    last = "completed" if status == "completed" else "incomplete"
    output = output_items(shape.id, answer, shape.body, status=last)
    return respond(shape, status, output, finished=answer.finished, error=error)


def respond(
    shape: Shape,
    status: str,
    output: Sequence[Item] = (),
    *,
    finished: Finished | None = None,
    error: TandemError | None = None,
) -> dict[str, Any]:
    """Return the response object with items that were made already."""
    completed = status == "completed" and shape.completed_at_s is not None
    return {
        "id": public_id(shape.id),
        "object": "response",
        "created_at": int(shape.created_at_s),
        "completed_at": int(shape.completed_at_s or 0) if completed else None,
        "status": status,
        "background": shape.background,
        "error": _error(error),
        "incomplete_details": _why(finished) if status == "incomplete" else None,
        "model": shape.model,
        "output": list(output),
        "service_tier": shape.service_tier,
        "usage": _usage(finished.usage if finished else None),
        **_asked(shape.body),
    }


def _why(finished: Finished | None) -> dict[str, str]:
    refused = finished is not None and finished.reason is FinishReason.REFUSAL
    return {"reason": "content_filter" if refused else "max_output_tokens"}


def _error(error: TandemError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"code": _ERROR_CODES.get(error.code, "server_error"), "message": shown(error)}


def _usage(usage: Usage | None) -> dict[str, Any] | None:
    """Return the counts with every detail: clients' types need each."""
    if usage is None:
        return None
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_written_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }


def _asked(body: Mapping[str, Any]) -> dict[str, Any]:
    """Say the request again, with what its empty fields mean. None is the model's own default."""
    text = body.get("text") or {}
    reasoning = body.get("reasoning") or {}
    return {
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {
            "effort": reasoning.get("effort"),
            "summary": reasoning.get("summary") or reasoning.get("generate_summary"),
        },
        "safety_identifier": body.get("safety_identifier"),
        "store": body.get("store") is not False,
        "temperature": body.get("temperature"),
        "text": {"format": {"type": "text"}} | text,
        "tool_choice": _choice(body.get("tool_choice")),
        "tools": list(_tools(body.get("tools") or ())),
        "top_logprobs": body.get("top_logprobs") or 0,
        "top_p": body.get("top_p"),
        "truncation": body.get("truncation") or "disabled",
        "user": body.get("user"),
    }


def _tools(tools: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for tool in tools:
        match tool.get("type"):
            case "function":
                yield _function(tool)
            case "mcp":
                yield {name: tool.get(name) for name in _MCP_FIELDS}


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function in the flat shape, whichever it came in."""
    flat = tool.get("function") or tool
    return {
        "type": "function",
        "name": flat.get("name"),
        "description": flat.get("description"),
        "parameters": flat.get("parameters"),
        "strict": bool(flat.get("strict")),
    }


def _choice(choice: Any) -> Any:
    match choice:
        case None:
            return "auto"
        case {"type": "function", "function": {"name": name}}:
            return {"type": "function", "name": name}
    return choice
