"""Tunes Python's garbage collector for long-lived servers."""

from __future__ import annotations

import gc


def tune_collector() -> None:
    """Call once everything is loaded, before the first request.

    What is loaded by then lives for ever, so it need not be looked at again; and full collections
    become rare. Untuned, their pauses are the tail of the latency.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
