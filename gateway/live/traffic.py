"""Requests, tokens, times and errors of the last hour, from the sums that the clerk keeps.

Once a second only the last minutes are read: those before change only when a record comes late,
and are read again now and then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import msgspec

from gateway.live.parts import Parts, encode
from gateway.live.reading import Reader
from inference.request import Lane
from jobs.latency import percentile_s
from jobs.minutes import MinuteSums, MinuteTimes, sums_since, times_since

_MINUTE = timedelta(minutes=1)
SHOWN = 60 * _MINUTE
# What latencies and error rates are told of: enough to be steady, short enough to be about now.
RECENT = 5 * _MINUTE
_FRESH = 2 * _MINUTE
_ALL_EVERY = timedelta(seconds=30)
_SHARES = (0.5, 0.95, 0.99)
_FINE = ("completed", "cancelled")

Percentiles = list[float | None]
"""p50, p95 and p99, in seconds."""

_Each = TypeVar("_Each", MinuteSums, MinuteTimes)


class Minute(msgspec.Struct, frozen=True, kw_only=True):
    """One minute of all models: what ended in it by lane, and realtime's times by model."""

    requests: dict[str, int]
    failed: int
    input_tokens: dict[str, int]
    output_tokens: dict[str, int]
    first_token: dict[str, Percentiles]
    between_tokens: dict[str, Percentiles]


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """What ended in a lane within the last 60 seconds, for each of them."""

    requests_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one model in one lane within the last minutes, and of how many requests."""

    model: str
    lane: str
    requests: int
    first_token: Percentiles
    between_tokens: Percentiles


class ErrorCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often requests to a model failed in one way within the last hour, and when last."""

    model: str
    kind: str
    requests: int
    last_minute_s: int


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a model's recent requests failed, and how most of those did."""

    model: str
    failed: int
    ended: int
    kind: str


class Traffic:
    """The last hour of all teams."""

    name = "database"
    every_s = 1.0

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._sums: dict[datetime, list[MinuteSums]] = {}
        self._times: dict[datetime, list[MinuteTimes]] = {}
        self._minutes: dict[datetime, bytes] = {}
        self._all_at: datetime | None = None
        self.parts: Parts = {}
        self.latencies: list[Latency] = []
        self.failures: list[Failures] = []

    async def look(self, now: datetime) -> None:
        """Read what may have changed."""
        reads_all = self._all_at is None or now - self._all_at >= _ALL_EVERY
        since = floor_minute(now) - (SHOWN if reads_all else _FRESH)
        sums, times = await self._reader.read(partial(_read, since))
        if reads_all:
            self._all_at = now
        self.see(since, sums, times, now)

    def see(
        self,
        since: datetime,
        sums: Iterable[MinuteSums],
        times: Iterable[MinuteTimes],
        now: datetime,
    ) -> None:
        """Take all that there is of this minute and of later ones."""
        this = floor_minute(now)
        self._sums = _replace(self._sums, sums, since, this)
        self._times = _replace(self._times, times, since, this)
        self._minutes = {
            minute: self._minutes[minute]
            if minute < since
            else encode(_minute(ended, self._times.get(minute, [])))
            for minute, ended in self._sums.items()
        }
        self.latencies = _latencies(_flat(self._times, this - RECENT))
        self.failures = _failures(_flat(self._sums, this - RECENT))
        minutes = {f"minute/{_epoch_s(minute)}": told for minute, told in self._minutes.items()}
        self.parts = minutes | {
            "rates": encode(self._rates(now)),
            "latency": encode(self.latencies),
            "errors": encode(_errors(_flat(self._sums, this - SHOWN))),
        }

    def _rates(self, now: datetime) -> dict[str, Rate]:
        """Add up this minute, and of the one before the share that makes it whole."""
        this = floor_minute(now)
        shares = {this: 1.0, this - _MINUTE: 1 - (now - this) / _MINUTE}
        sums: dict[str, list[float]] = {lane.value: [0.0, 0.0, 0.0] for lane in Lane}
        for minute, share in shares.items():
            for each in self._sums.get(minute, []):
                lane = sums.setdefault(each.lane, [0.0, 0.0, 0.0])
                for place, count in enumerate(
                    (each.requests, each.input_tokens, each.output_tokens)
                ):
                    lane[place] += share * count / 60
        return {
            lane: Rate(
                requests_per_s=round(requests, 2),
                input_tokens_per_s=round(read, 1),
                output_tokens_per_s=round(written, 1),
            )
            for lane, (requests, read, written) in sums.items()
        }


def floor_minute(at: datetime) -> datetime:
    """Return the minute that a moment is in."""
    return at.replace(second=0, microsecond=0)


def _read(since: datetime) -> tuple[list[MinuteSums], list[MinuteTimes]]:
    return sums_since(since), times_since(since)


def _replace(
    known: dict[datetime, list[_Each]], found: Iterable[_Each], since: datetime, this: datetime
) -> dict[datetime, list[_Each]]:
    """Put what was found in the place of all from `since` on, and forget what is too old."""
    kept = {minute: each for minute, each in known.items() if this - SHOWN <= minute < since}
    for one in found:
        # Their order is that of time.
        kept.setdefault(one.minute, []).append(one)
    return kept


def _flat(minutes: dict[datetime, list[_Each]], since: datetime) -> list[_Each]:
    return [one for minute, found in minutes.items() if minute >= since for one in found]


def _minute(sums: Iterable[MinuteSums], times: Iterable[MinuteTimes]) -> Minute:
    requests: Counter[str] = Counter()
    read: Counter[str] = Counter()
    written: Counter[str] = Counter()
    failed = 0
    for each in sums:
        requests[each.lane] += each.requests
        read[each.lane] += each.input_tokens
        written[each.lane] += each.output_tokens
        failed += each.requests if each.outcome not in _FINE else 0
    realtime = [each for each in times if each.lane == Lane.REALTIME]
    return Minute(
        requests=requests,
        failed=failed,
        input_tokens=read,
        output_tokens=written,
        first_token={each.model: _percentiles(each.first_token) for each in realtime},
        between_tokens={each.model: _percentiles(each.between_tokens) for each in realtime},
    )


def _latencies(times: Iterable[MinuteTimes]) -> list[Latency]:
    groups: dict[tuple[str, str], list[MinuteTimes]] = defaultdict(list)
    for each in times:
        groups[each.model, each.lane].append(each)
    return [_latency(*group, groups[group]) for group in sorted(groups)]


def _latency(model: str, lane: str, times: list[MinuteTimes]) -> Latency:
    first = [sum(counts) for counts in zip(*(each.first_token for each in times), strict=True)]
    between = [sum(counts) for counts in zip(*(each.between_tokens for each in times), strict=True)]
    return Latency(
        model=model,
        lane=lane,
        requests=sum(first),
        first_token=_percentiles(first),
        between_tokens=_percentiles(between),
    )


def _failures(sums: Iterable[MinuteSums]) -> list[Failures]:
    ended: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for each in sums:
        ended[each.model] += each.requests
        if each.outcome not in _FINE:
            kinds[each.model][each.outcome] += each.requests
    return [
        Failures(
            model=model,
            failed=counts.total(),
            ended=ended[model],
            kind=counts.most_common(1)[0][0],
        )
        for model, counts in sorted(kinds.items())
        if counts.total()
    ]


def _errors(sums: Iterable[MinuteSums]) -> list[ErrorCount]:
    """Add up by model and kind, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    last: dict[tuple[str, str], datetime] = {}
    for each in sums:
        if each.outcome not in _FINE and each.requests:
            group = each.model, each.outcome
            counts[group] += each.requests
            last[group] = max(each.minute, last.get(group, each.minute))
    return [
        ErrorCount(
            model=model, kind=kind, requests=count, last_minute_s=_epoch_s(last[model, kind])
        )
        for (model, kind), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _percentiles(counts: list[int]) -> Percentiles:
    return [_short(percentile_s(counts, share)) for share in _SHARES]


def _short(time_s: float | None) -> float | None:
    """Three digits: finer is neither read nor known."""
    return None if time_s is None else float(f"{time_s:.3g}")


def _epoch_s(minute: datetime) -> int:
    return int(minute.timestamp())
