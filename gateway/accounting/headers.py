"""The headers that tell a caller how much of its limits is left, as Anthropic and OpenAI do."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from gateway.errors import Header
from jobs.quota.claims import Granted, Left, Limit, Refusal

_WHAT = ("limit", "remaining", "reset")


def _names(name: str, openai: str | None = None) -> list[bytes]:
    """Return Anthropic's names, and then OpenAI's where it has one."""
    theirs = [f"x-ratelimit-{what}-{openai}" for what in _WHAT] if openai else []
    ours = [f"anthropic-ratelimit-{name}-{what}" for what in _WHAT]
    return [each.encode() for each in (*ours, *theirs)]


_OF_REQUESTS = _names("requests", "requests")
_OF_INPUT = _names("input-tokens")
_OF_OUTPUT = _names("output-tokens")
_OF_TOKENS = _names("tokens", "tokens")


def limit_headers(decision: Granted | Refusal) -> list[Header]:
    """Return the headers for the limits that a request was subject to; without any, none.

    Where several apply, of key and team or of input and output, the one with the least left is
    told. A limit's reset is when it is whole again: for Anthropic's headers as a time (RFC 3339),
    for OpenAI's as a duration.
    """
    now_ms = decision.now_ms
    found: list[Header] = []
    if requests := decision.least(Limit.REQUESTS):
        found += zip(_OF_REQUESTS, _values(now_ms, requests), strict=True)
    taken, given = decision.least(Limit.INPUT_TOKENS), decision.least(Limit.OUTPUT_TOKENS)
    # Of these two OpenAI has no name.
    if taken:
        of_input = _values(now_ms, taken)
        found += zip(_OF_INPUT, of_input, strict=False)
    if given:
        of_output = _values(now_ms, given)
        found += zip(_OF_OUTPUT, of_output, strict=False)
    if taken or given:
        tighter = of_output if given and not (taken and taken < given) else of_input
        found += zip(_OF_TOKENS, tighter, strict=True)
    return found


def _values(now_ms: int, left: Left) -> tuple[bytes, ...]:
    """Return what Anthropic's headers say, and then what OpenAI's say."""
    told = b"%d" % left.limit, b"%d" % left.remaining
    at = _rfc3339(-(-(now_ms + left.full_in_ms) // 1000))
    return (*told, at, *told, duration(left.full_in_ms).encode())


# Many requests are told of the same second.
@lru_cache(maxsize=256)
def _rfc3339(unix_s: int) -> bytes:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%dT%H:%M:%SZ}".encode()


def duration(milliseconds: int) -> str:
    """Write a duration as Go and OpenAI do: 12ms, 6s, 1m3.5s, 2h0m0s."""
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    seconds = f"{rest // 1000}.{rest % 1000:03d}".rstrip("0").rstrip(".")
    if not minutes:
        return f"{seconds}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s"
