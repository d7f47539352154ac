"""The headers that tell a caller how much of its limits is left, as Anthropic and OpenAI do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

from gateway.errors import Header
from jobs.quota.claims import Bucket, Granted, Limit, Refusal

_TOKENS = (Limit.INPUT_TOKENS, Limit.OUTPUT_TOKENS)
_ANTHROPIC = {
    "requests": (Limit.REQUESTS,),
    "input-tokens": (Limit.INPUT_TOKENS,),
    "output-tokens": (Limit.OUTPUT_TOKENS,),
    "tokens": _TOKENS,
}
_OPENAI = {"requests": (Limit.REQUESTS,), "tokens": _TOKENS}


def limit_headers(decision: Granted | Refusal) -> list[Header]:
    """Return the headers for the limits that a request was subject to; without any, none.

    Where several apply, of key and team or of input and output, the one with the least left is
    told. A limit's reset is when it is whole again: for Anthropic's headers as a time (RFC 3339),
    for OpenAI's as a duration.
    """
    found: dict[str, str] = {}
    for name, kinds in _ANTHROPIC.items():
        bucket = _tightest(decision.buckets, kinds)
        if bucket:
            full_s = -(-(decision.now_ms + bucket.full_in_ms) // 1000)
            found[f"anthropic-ratelimit-{name}-limit"] = str(bucket.limit)
            found[f"anthropic-ratelimit-{name}-remaining"] = str(bucket.remaining)
            found[f"anthropic-ratelimit-{name}-reset"] = _rfc3339(full_s)
    for name, kinds in _OPENAI.items():
        bucket = _tightest(decision.buckets, kinds)
        if bucket:
            found[f"x-ratelimit-limit-{name}"] = str(bucket.limit)
            found[f"x-ratelimit-remaining-{name}"] = str(bucket.remaining)
            found[f"x-ratelimit-reset-{name}"] = duration(bucket.full_in_ms)
    return [(name.encode(), value.encode()) for name, value in found.items()]


# Many requests are told of the same second.
@lru_cache(maxsize=256)
def _rfc3339(unix_s: int) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%dT%H:%M:%SZ}"


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


def _tightest(buckets: Iterable[Bucket], kinds: tuple[Limit, ...]) -> Bucket | None:
    candidates = [bucket for bucket in buckets if bucket.kind in kinds]
    return min(candidates, key=lambda bucket: (bucket.remaining, bucket.limit), default=None)
