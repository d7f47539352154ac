"""The headers that tell of limits."""

from __future__ import annotations

import pytest

from gateway.accounting.headers import duration, limit_headers
from jobs.quota.claims import Granted, Holder, Limit
from tests.unit.jobs.quota.kit import BUCKETS, Bucket

# 2026-08-07 12:00:00 UTC
NOON_MS = 1_786_104_000_000
UNIT = 60_000


def bucket(holder: Holder, kind: Limit, limit: int, left: int) -> Bucket:
    return Bucket(holder=holder, kind=kind, limit=limit, level=left * UNIT)


def headers(*buckets: Bucket) -> dict[str, str]:
    levels = dict.fromkeys(BUCKETS, (-1, 0))
    levels |= {(each.holder, each.kind): (each.limit, each.level) for each in buckets}
    told = tuple(number for pair in levels.values() for number in pair)
    found = limit_headers(Granted(now_ms=NOON_MS, levels=told if buckets else ()))
    assert len({name for name, _ in found}) == len(found)
    return {name.decode(): value.decode() for name, value in found}


def test_a_request_without_limits_gets_none() -> None:
    assert headers() == {}


def test_requests_are_told_in_both_dialects() -> None:
    assert headers(bucket(Holder.TEAM, Limit.REQUESTS, 60, 55)) == {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "55",
        "anthropic-ratelimit-requests-reset": "2026-08-07T12:00:05Z",
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "55",
        "x-ratelimit-reset-requests": "5s",
    }


def test_tokens_are_those_of_the_tighter_of_input_and_output() -> None:
    found = headers(
        bucket(Holder.KEY, Limit.INPUT_TOKENS, 1000, 900),
        bucket(Holder.KEY, Limit.OUTPUT_TOKENS, 200, 150),
    )
    assert found == {
        "anthropic-ratelimit-input-tokens-limit": "1000",
        "anthropic-ratelimit-input-tokens-remaining": "900",
        "anthropic-ratelimit-input-tokens-reset": "2026-08-07T12:00:06Z",
        "anthropic-ratelimit-output-tokens-limit": "200",
        "anthropic-ratelimit-output-tokens-remaining": "150",
        "anthropic-ratelimit-output-tokens-reset": "2026-08-07T12:00:15Z",
        "anthropic-ratelimit-tokens-limit": "200",
        "anthropic-ratelimit-tokens-remaining": "150",
        "anthropic-ratelimit-tokens-reset": "2026-08-07T12:00:15Z",
        "x-ratelimit-limit-tokens": "200",
        "x-ratelimit-remaining-tokens": "150",
        "x-ratelimit-reset-tokens": "15s",
    }


@pytest.mark.parametrize("tighter", [Holder.KEY, Holder.TEAM])
def test_of_key_and_team_the_one_with_less_left_is_told(tighter: Holder) -> None:
    looser = Holder.TEAM if tighter is Holder.KEY else Holder.KEY
    found = headers(
        bucket(looser, Limit.REQUESTS, 10, 6),
        bucket(tighter, Limit.REQUESTS, 100, 5),
    )
    assert found["anthropic-ratelimit-requests-limit"] == "100"
    assert found["x-ratelimit-remaining-requests"] == "5"


def test_a_debt_is_told_as_nothing_left() -> None:
    found = headers(bucket(Holder.KEY, Limit.OUTPUT_TOKENS, 60, -60))
    assert found["anthropic-ratelimit-output-tokens-remaining"] == "0"
    assert found["anthropic-ratelimit-output-tokens-reset"] == "2026-08-07T12:02:00Z"


def test_a_reset_is_never_told_too_early() -> None:
    late = Bucket(holder=Holder.KEY, kind=Limit.REQUESTS, limit=60, level=60 * UNIT - 1)
    found = headers(late)
    assert found["anthropic-ratelimit-requests-reset"] == "2026-08-07T12:00:01Z"
    assert found["x-ratelimit-reset-requests"] == "1ms"


def test_a_limit_of_nothing_is_told() -> None:
    found = headers(bucket(Holder.KEY, Limit.REQUESTS, 0, 0))
    assert found["x-ratelimit-limit-requests"] == "0"
    assert found["x-ratelimit-reset-requests"] == "0s"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0s"),
        (12, "12ms"),
        (1000, "1s"),
        (6500, "6.5s"),
        (10_050, "10.05s"),
        (60_000, "1m0s"),
        (63_500, "1m3.5s"),
        (360_000, "6m0s"),
        (7_205_000, "2h0m5s"),
    ],
)
def test_durations_are_written_as_go_does(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text
