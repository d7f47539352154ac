"""Histograms of times, fine enough to read percentiles from, and the same wherever they are added.

Pure. Buckets widen with the times: four for each doubling, so that a percentile is within a fifth
of what a sorted list would say. The bounds are a part of what the database holds: they must not
change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_FIRST_S = 0.001
_PER_DOUBLING = 4
# From 1 ms to 17 minutes; the last bucket has no upper bound.
BUCKETS = 20 * _PER_DOUBLING + 1


def bucket_of(time_s: float) -> int:
    """Return the bucket that a time belongs to; clocks that ran backwards count as no time."""
    if time_s <= _FIRST_S:
        return 0
    return min(BUCKETS - 1, math.ceil(_PER_DOUBLING * math.log2(time_s / _FIRST_S)))


def percentile_s(counts: Sequence[int], share: float) -> float | None:
    """Return the time that this share of the times did not exceed; None: there are no times.

    Within its bucket a time is taken to lie where its rank says, on the scale of the bounds.
    """
    total = sum(counts)
    if total <= 0:
        return None
    rank, seen = share * total, 0
    for bucket, count in enumerate(counts):
        if count > 0 and seen + count >= rank:
            return _bound_s(bucket - 1 + max(0.0, rank - seen) / count)
        seen += count
    return _bound_s(len(counts) - 1)


def _bound_s(bucket: float) -> float:
    return _FIRST_S * 2 ** (bucket / _PER_DOUBLING)
