"""The headers that tell a caller how much of its limits is left, as Anthropic and OpenAI do."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from gateway.errors import Header
from jobs.quota.claims import Granted, Limit, Refusal

# Anthropic's names, and OpenAI's where it has one.
_NAMES = (
    ("requests", (Limit.REQUESTS,), "requests"),
    ("input-tokens", (Limit.INPUT_TOKENS,), None),
    ("output-tokens", (Limit.OUTPUT_TOKENS,), None),
    ("tokens", (Limit.INPUT_TOKENS, Limit.OUTPUT_TOKENS), "tokens"),
)
_WHAT = ("limit", "remaining", "reset")
_HEADERS = [
    (
        kinds,
        [f"anthropic-ratelimit-{name}-{what}".encode() for what in _WHAT],
        [f"x-ratelimit-{what}-{other}".encode() for what in _WHAT] if other else None,
    )
    for name, kinds, other in _NAMES
]


def limit_headers(decision: Granted | Refusal) -> list[Header]:
    """Return the headers for the limits that a request was subject to; without any, none.

    Where several apply, of key and team or of input and output, the one with the least left is
    told. A limit's reset is when it is whole again: for Anthropic's headers as a time (RFC 3339),
    for OpenAI's as a duration.
    """
    left = [(each.remaining, each.limit, each.full_in_ms, each.kind) for each in decision.buckets]
    found: list[Header] = []
    for kinds, anthropic, openai in _HEADERS:
        candidates = [each for each in left if each[-1] in kinds]
        if not candidates:
            continue
        remaining, limit, full_in_ms, _ = min(candidates)
        told = (b"%d" % limit, b"%d" % remaining)
        full_s = -(-(decision.now_ms + full_in_ms) // 1000)
        found += zip(anthropic, (*told, _rfc3339(full_s)), strict=True)
        if openai:
            found += zip(openai, (*told, duration(full_in_ms).encode()), strict=True)
    return found


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
