"""Why a request did not end well, and where an operator looks next. Pure."""

from __future__ import annotations

from inference.errors import ErrorCode
from inference.events import FinishReason
from inference.transport.records import Ending

_BY_DETAIL: dict[str, str] = {
    ErrorCode.INVALID_REQUEST: "The caller sent something that cannot be served; the message says "
    "which field.",
    ErrorCode.PROMPT_TOO_LONG: "The prompt is longer than the model's context. The caller must "
    "shorten it, or use a model with a longer one.",
    ErrorCode.NO_ENGINE: "No engine of this model was up. Look at the engines, and at the log of "
    "the model's worker.",
    ErrorCode.OVERLOADED: "As many requests waited as the model's max_waiting lets wait. More "
    "engines, or fewer callers.",
    ErrorCode.TIMEOUT: "It was not done within REQUEST_TIMEOUT_S. Compare how long it waited with "
    "how long it was answered.",
    ErrorCode.ENGINE_FAILED: "The engine, or the upstream behind it, could not serve it. Its log "
    "has more.",
    ErrorCode.ENGINE_LOST: "The engine died while it answered, and no other could take over. "
    "Nothing was billed.",
    ErrorCode.RESOURCE_UNAVAILABLE: "No place came free within FLEX_WAIT_S.",
    ErrorCode.BALANCE_EXHAUSTED: "The team's balance was used up. Give it credit.",
    ErrorCode.SPEND_CAP: "The team had reached its cap on spending.",
    ErrorCode.RATE_LIMITED: "The team or the key had reached a limit.",
    ErrorCode.EXPIRED: "Its window ended before an engine had done it.",
    ErrorCode.CANCELLED: "It was cancelled before it had ended.",
    ErrorCode.MODEL_NOT_FOUND: "The catalogue has no such model, or the key may not use it.",
    ErrorCode.UNAVAILABLE: "The database or Redis could not be reached.",
    ErrorCode.INTERNAL: "A fault of the service. The log has it, under the request's id.",
    FinishReason.LENGTH: "The answer was cut at max_tokens.",
}
_BY_ENDING: dict[str, str] = {
    Ending.CANCELLED: "The caller left before the answer had ended.",
    Ending.GATEWAY_LOST: "The gateway that served it died. Nothing was billed.",
    Ending.ENGINE_LOST: _BY_DETAIL[ErrorCode.ENGINE_LOST],
    Ending.TIMEOUT: _BY_DETAIL[ErrorCode.TIMEOUT],
}


def explain(ending: str, detail: str) -> str:
    """Return what lies behind an ending and its detail; nothing for what ended as it should."""
    return _BY_DETAIL.get(detail) or _BY_ENDING.get(ending, "")
