"""Why a request did not end well, and where an operator looks next. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from inference.errors import ErrorCode
from inference.events import FinishReason
from inference.request import Lane
from inference.transport.records import Ending
from jobs.models import RequestRecord, Work

# What ended at its deadline is told a moment later, or by another clock.
_CLOCKS_DIFFER = timedelta(seconds=2)
_WORK = (Lane.BACKGROUND, Lane.BATCH)


class End(NamedTuple):
    """How a request ended: `ending` and `detail` are those of the audit trail.

    `was_taken`: an engine had the last attempt, and so what is said of a queue or a limit is said
    of an upstream's. `is_late`: its time was up. `is_work`: nobody held a connection open for it.
    `may_fall_back`: a fallback model would have got it.
    """

    ending: str
    detail: str
    was_taken: bool = False
    is_late: bool = False
    is_work: bool = False
    may_fall_back: bool = True


_BY_DETAIL: dict[str, str] = {
    ErrorCode.INVALID_REQUEST: "The caller sent something that cannot be served; the message says "
    "what.",
    ErrorCode.PROMPT_TOO_LONG: "The prompt is longer than the model's context. The caller must "
    "shorten it, or use a model with a longer one.",
    ErrorCode.TOO_LARGE: "The upstream takes no request of this size. The caller must shorten it.",
    ErrorCode.NO_ENGINE: "No engine of this model was ready. Look at the engines, and at the log "
    "of the model's worker.",
    ErrorCode.OVERLOADED: "As many requests waited as the model's max_waiting lets wait. More "
    "engines, or fewer callers.",
    ErrorCode.TIMEOUT: "It was not done within REQUEST_TIMEOUT_S. Compare how long it waited with "
    "how long it was answered.",
    ErrorCode.ENGINE_FAILED: "The engine, or the way to the upstream behind it, could not serve "
    "it. Its log has more.",
    ErrorCode.ENGINE_LOST: "The engine stopped, or part of what it said was lost, before the "
    "answer was complete, and no other could take over. Nothing was billed.",
    ErrorCode.RESOURCE_UNAVAILABLE: "There was no place for it in the flex lane: as many waited as "
    "the model's max_waiting lets wait, or none came free within FLEX_WAIT_S.",
    ErrorCode.BALANCE_EXHAUSTED: "The team's balance was used up, or less than the request might "
    "have cost. Give it credit.",
    ErrorCode.SPEND_CAP: "The team had reached its cap on spending, or the request might have "
    "passed it.",
    ErrorCode.RATE_LIMITED: "The team or the key had reached a limit of its own.",
    ErrorCode.PERMISSION: "Its team or key may not do this, or is gone; the message says which.",
    ErrorCode.EXPIRED: "Its window ended before an engine had done it.",
    ErrorCode.CANCELLED: "The caller left before the answer had ended.",
    ErrorCode.MODEL_NOT_FOUND: "The catalogue has no such model, or the key may not use it.",
    ErrorCode.UNAVAILABLE: "The database or Redis could not be reached, or the gateway was being "
    "stopped; the message says which.",
    ErrorCode.INTERNAL: "A fault of the service. What the logs have of it is there under the "
    "request's id.",
    FinishReason.LENGTH: "The answer was cut at max_tokens, or where the model's context ended.",
}
# What only an upstream says of a request that an engine had.
_BY_UPSTREAM: dict[str, str] = {
    ErrorCode.OVERLOADED: "The upstream was full, or said so; nothing here was. ",
    ErrorCode.RESOURCE_UNAVAILABLE: "This service had reached a limit of the upstream's; no limit "
    "here was reached. ",
    ErrorCode.TIMEOUT: "The upstream did not answer in time: it was silent for longer than its "
    "read timeout, or gave up by itself. ",
    ErrorCode.UNAVAILABLE: "The upstream could not be reached, failed, or refused this service; or "
    "the gateway was being stopped. The message says which. ",
}
_BY_ENDING: dict[str, str] = {
    Ending.CANCELLED: _BY_DETAIL[ErrorCode.CANCELLED],
    Ending.GATEWAY_LOST: "The gateway that served it died. Nothing was billed.",
    Ending.ENGINE_LOST: _BY_DETAIL[ErrorCode.ENGINE_LOST],
    Ending.TIMEOUT: _BY_DETAIL[ErrorCode.TIMEOUT],
}
_OF_WORK: dict[str, str] = {
    ErrorCode.CANCELLED: "It was cancelled before it had ended.",
    ErrorCode.TIMEOUT: _BY_DETAIL[ErrorCode.EXPIRED],
}


def end_of(record: RequestRecord) -> End:
    """Return how a request ended, as the trail has it."""
    return End(
        record.ending,
        record.detail,
        # Each attempt forgets the engine of the one before.
        was_taken=record.engine_id is not None,
        is_late=_is_late(record.engine_ended_at or record.closed_at, record.deadline_at),
        is_work=record.lane in _WORK,
        may_fall_back=_may_fall_back(record),
    )


def end_of_work(work: Work) -> End:
    """Return how work ended that the trail does not have."""
    return End(
        "",
        reason_of_row(work.outcome, work.error_code),
        was_taken=work.attempts > 0,
        is_late=_is_late(work.ended_at, work.deadline_at),
        is_work=True,
        may_fall_back=False,
    )


def reason_of_row(outcome: str, error_code: str) -> str:
    """Return the code of why a row has no answer; empty for one that has, or may get one.

    What never ran because it was cancelled, or its window ended, has no error of its own.
    """
    ended_unserved = (Work.Outcome.CANCELLED, Work.Outcome.EXPIRED)
    return error_code or (outcome if outcome in ended_unserved else "")


def row_says(outcome: str, error_code: str, error_message: str) -> str:
    """Return why a row has no answer, on one line; empty for one that has, or may get one."""
    reason = reason_of_row(outcome, error_code)
    return f"{reason}: {error_message}" if reason and error_message else reason


def explain(end: End) -> str:
    """Return what lies behind an end; nothing for what ended as it should."""
    code = end.detail
    if end.was_taken and code in _BY_UPSTREAM and not (code == ErrorCode.TIMEOUT and end.is_late):
        advice = ", or set a fallback model" if end.may_fall_back else ""
        return f"{_BY_UPSTREAM[code]}Try again later{advice}."
    if end.is_work:
        of_work = _OF_WORK.get(code) or (_OF_WORK.get(end.ending) if not code else None)
        if of_work:
            return of_work
    return _BY_DETAIL.get(code) or _BY_ENDING.get(end.ending, "")


def _may_fall_back(record: RequestRecord) -> bool:
    """Whether a request goes to its model's fallback, and has not done so already.

    In the flex lane, to find no room is what was paid less for (`gateway.serving.fallback`).
    """
    if record.requested_model or record.lane in _WORK:
        return False
    return not (record.lane == Lane.FLEX and record.detail == ErrorCode.RESOURCE_UNAVAILABLE)


def _is_late(ended_at: datetime | None, deadline_at: datetime | None) -> bool:
    return bool(ended_at and deadline_at and ended_at >= deadline_at - _CLOCKS_DIFFER)
