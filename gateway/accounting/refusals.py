"""What a caller is told when limits, caps or the balance refuse its request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gateway.amounts import amount
from inference.errors import ErrorCode, TandemError
from jobs.quota.claims import Capped, Claim, Exhausted, Limit, Period, RateLimited, Refusal

_WHAT = {
    Limit.REQUESTS: "requests per minute",
    Limit.INPUT_TOKENS: "input tokens per minute",
    Limit.OUTPUT_TOKENS: "output tokens per minute",
    Limit.CONCURRENCY: "requests at once",
}


class LimitError(TandemError):
    """A refusal as an error: RATE_LIMITED, SPEND_CAP or BALANCE_EXHAUSTED.

    `refusal` says how full each limit is, for the headers of the answer.
    """

    def __init__(
        self, code: ErrorCode, message: str, *, retry_after_s: float | None, refusal: Refusal
    ) -> None:
        super().__init__(code, message, retry_after_s=retry_after_s)
        self.refusal = refusal


def refused(refusal: Refusal, claim: Claim) -> LimitError:
    """Return the error for a refusal: which limit, whose, and when trying again may help."""
    hold_micros = claim.spend.hold_micros if claim.spend else 0
    match refusal:
        case RateLimited():
            message = (
                f"rate limit reached: this {refusal.holder} is allowed {refusal.limit} "
                f"{_WHAT[refusal.kind]}"
            )
            code, wait_s = ErrorCode.RATE_LIMITED, refusal.wait_ms / 1000
            return LimitError(code, message, retry_after_s=wait_s, refusal=refusal)
        case Exhausted():
            message = _exhausted(refusal, hold_micros)
            code = ErrorCode.BALANCE_EXHAUSTED
            return LimitError(code, message, retry_after_s=None, refusal=refusal)
        case Capped():
            return _capped(refusal, hold_micros)


def _exhausted(refusal: Exhausted, hold_micros: int) -> str:
    if refusal.balance_micros <= 0:
        return "the team's balance is used up"
    return (
        f"the team's balance does not cover this request: of {amount(refusal.balance_micros)}, "
        f"{amount(refusal.held_micros)} is held for requests that are running, and this one may "
        f"cost {amount(hold_micros)}"
    )


def _capped(refusal: Capped, hold_micros: int) -> LimitError:
    now = datetime.fromtimestamp(refusal.now_ms / 1000, UTC)
    resets = _next(refusal.period, now)
    # Claude Code's users know the words before the colon.
    message = (
        f"spend limit reached ({refusal.period}; resets {resets:%Y-%m-%d %H:%M} UTC): of "
        f"{amount(refusal.cap_micros)}, {amount(refusal.spent_micros)} is spent and "
        f"{amount(refusal.held_micros)} held for requests that are running, and this one may cost "
        f"{amount(hold_micros)}"
    )
    wait_s = (resets - now).total_seconds()
    # What alone may cost more than the cap is never let in.
    retry_after_s = wait_s if hold_micros <= refusal.cap_micros else None
    return LimitError(ErrorCode.SPEND_CAP, message, retry_after_s=retry_after_s, refusal=refusal)


def _next(period: Period, now: datetime) -> datetime:
    """Return when the next day or month begins."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if period is Period.DAILY:
        return today + timedelta(days=1)
    return (today.replace(day=1) + timedelta(days=32)).replace(day=1)
