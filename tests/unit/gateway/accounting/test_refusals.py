"""What callers are told when they are refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.accounting.refusals import refused
from gateway.amounts import amount
from gateway.errors import error_headers
from inference.errors import ErrorCode
from jobs.quota.claims import Capped, Exhausted, Holder, Limit, Period, RateLimited, Refusal
from tests.unit.jobs.quota.kit import make_claim, prepaid

NOON_MS = round(datetime(2026, 8, 7, 12, tzinfo=UTC).timestamp() * 1000)
CLAIM = make_claim(spend=prepaid(700_000))


def capped(period: Period, cap_micros: int = 10_000_000, now_ms: int = NOON_MS) -> Capped:
    return Capped(
        now_ms=now_ms,
        period=period,
        cap_micros=cap_micros,
        spent_micros=9_250_000,
        held_micros=500_001,
    )


def exhausted(balance_micros: int) -> Exhausted:
    return Exhausted(now_ms=NOON_MS, balance_micros=balance_micros, held_micros=200_000)


@pytest.mark.parametrize(
    ("holder", "kind", "words"),
    [
        (Holder.KEY, Limit.REQUESTS, "this key is allowed 5 requests per minute"),
        (Holder.TEAM, Limit.INPUT_TOKENS, "this team is allowed 5 input tokens per minute"),
        (Holder.KEY, Limit.OUTPUT_TOKENS, "this key is allowed 5 output tokens per minute"),
        (Holder.TEAM, Limit.CONCURRENCY, "this team is allowed 5 requests at once"),
    ],
)
def test_a_rate_limit_is_named_with_its_owner(holder: Holder, kind: Limit, words: str) -> None:
    refusal = RateLimited(now_ms=NOON_MS, holder=holder, kind=kind, limit=5, wait_ms=1500)
    error = refused(refusal, CLAIM)
    assert error.code is ErrorCode.RATE_LIMITED
    assert error.message == f"rate limit reached: {words}"
    assert (b"retry-after", b"2") in error_headers(error)


def test_a_balance_that_is_used_up_is_called_so() -> None:
    error = refused(exhausted(0), CLAIM)
    assert error.code is ErrorCode.BALANCE_EXHAUSTED
    assert error.message == "the team's balance is used up"


def test_a_balance_that_is_too_small_is_told_with_what_is_needed() -> None:
    error = refused(exhausted(600_000), CLAIM)
    assert error.code is ErrorCode.BALANCE_EXHAUSTED
    assert error.message == (
        "the team's balance does not cover this request: of 0.60, 0.20 is held for requests that "
        "are running, and this one may cost 0.70"
    )
    headers = dict(error_headers(error))
    assert headers[b"x-should-retry"] == b"false"
    assert b"retry-after" not in headers


def test_a_daily_cap_says_when_it_is_lifted() -> None:
    error = refused(capped(Period.DAILY), CLAIM)
    assert error.code is ErrorCode.SPEND_CAP
    assert error.message == (
        "spend limit reached (daily; resets 2026-08-08 00:00 UTC): of 10.00, 9.25 is spent and "
        "0.500001 held for requests that are running, and this one may cost 0.70"
    )
    headers = dict(error_headers(error))
    assert headers[b"retry-after"] == b"43200"
    assert headers[b"x-should-retry"] == b"false"


@pytest.mark.parametrize(
    ("now", "resets"),
    [
        (datetime(2026, 8, 7, tzinfo=UTC), "2026-09-01"),
        (datetime(2026, 12, 31, 23, tzinfo=UTC), "2027-01-01"),
        (datetime(2027, 1, 31, tzinfo=UTC), "2027-02-01"),
    ],
)
def test_a_monthly_cap_is_lifted_on_the_first(now: datetime, resets: str) -> None:
    error = refused(capped(Period.MONTHLY, now_ms=round(now.timestamp() * 1000)), CLAIM)
    assert f"(monthly; resets {resets} 00:00 UTC)" in error.message
    until = datetime.fromisoformat(f"{resets}T00:00:00+00:00")
    assert error.retry_after_s == (until - now).total_seconds()


def test_waiting_does_not_help_what_costs_more_than_the_whole_cap() -> None:
    assert refused(capped(Period.DAILY, cap_micros=699_999), CLAIM).retry_after_s is None


@pytest.mark.parametrize("refusal", [exhausted(0), capped(Period.DAILY)])
def test_an_error_keeps_its_refusal_for_the_headers(refusal: Refusal) -> None:
    assert refused(refusal, CLAIM).refusal is refusal


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0.00"),
        (1, "0.000001"),
        (1_500_000, "1.50"),
        (-250_000, "-0.25"),
        (2**53, "9007199254.740992"),
    ],
)
def test_amounts_are_written_exactly(micros: int, text: str) -> None:
    assert amount(micros) == text
