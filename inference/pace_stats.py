"""What an engine's pace has come to, for those who show it: apart, because they need no numpy."""

from __future__ import annotations

import msgspec


class PaceStats(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine's pace has come to. Times are in seconds.

    Row-steps count each row of work in each step in which it could run. Recomputed tokens are
    those of rows that made room in the cache for realtime.
    """

    itl_target_s: float
    ttft_target_s: float
    idle_itl_s: float
    idle_ttft_s: float
    row_steps: int = 0
    held_row_steps: int = 0
    evictions: int = 0
    recomputed_tokens: int = 0
