"""What an engine measures, as its heartbeat tells gateways and they tell Prometheus.

Whatever counts does so from the engine's start and never goes down.
"""

from __future__ import annotations

import msgspec

from inference.pace_stats import PaceStats
from inference.request import Lane

# The upper bounds of histograms' buckets. Waits: 1 ms doubling up to nine minutes.
WAIT_BOUNDS_S = tuple(2**power / 1000 for power in range(20))
# Times between tokens: from 1 ms to 0.8 s, two for each doubling.
PACE_BOUNDS_S = tuple(first * 2**power / 1000 for power in range(10) for first in (1, 1.5))


class Histogram(msgspec.Struct, frozen=True, array_like=True):
    """How many times were within each bucket, the last of which has no upper bound; empty: none."""

    counts: tuple[int, ...] = ()
    sum_s: float = 0.0


class LaneFigures(msgspec.Struct, frozen=True, array_like=True):
    """What an engine has done for one lane. `permits` is how many requests hold one now.

    `input_tokens` includes `cached_tokens`. Attempts count whatever became of them.
    """

    permits: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    queue_time: Histogram = Histogram()
    time_to_first_token: Histogram = Histogram()
    time_per_output_token: Histogram = Histogram()


class Attainment(msgspec.Struct, frozen=True, array_like=True):
    """How many realtime requests saw the times that they were to see, and how many did not."""

    ttft_met: int = 0
    ttft_missed: int = 0
    itl_met: int = 0
    itl_missed: int = 0


class EngineFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine's admission and pace have decided, and what requests saw of it.

    `kept_permits` are those that the lower lanes leave free. `preemptions` are rows of work that
    lost their place, `wasted_tokens` what had been computed for them. `prefix_queries` are tokens
    that were looked for in the prefix cache. None: the backend does not say, or is not up.
    """

    lanes: dict[Lane, LaneFigures] = {}
    kept_permits: int = 0
    preemptions: int = 0
    wasted_tokens: int = 0
    attained: Attainment = Attainment()
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    pace: PaceStats | None = None
