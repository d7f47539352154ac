"""The priorities that an engine's scheduler knows requests by: the lower number goes first."""

from __future__ import annotations

from inference.request import Lane

# Above it, a request's part of each step is at the pace that realtime leaves.
REALTIME = 0
# Work that has risen: some of it runs whatever realtime does.
RISEN = 1

PRIORITY = {Lane.REALTIME: REALTIME, Lane.FLEX: RISEN, Lane.BACKGROUND: 2, Lane.BATCH: 3}
