"""Prices for tests: a micro-unit a token of input, two of output."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from jobs.pricing import PriceVersion


def make_price(**fields: Any) -> PriceVersion:
    """Return a version; the given fields replace the defaults."""
    defaults: dict[str, Any] = {
        "id": 1,
        "model": "model-under-test",
        "effective_from": datetime(2026, 1, 1, tzinfo=UTC),
        "input_micros_per_mtok": 1_000_000,
        "cached_input_micros_per_mtok": 100_000,
        "cache_write_micros_per_mtok": 1_000_000,
        "output_micros_per_mtok": 2_000_000,
        "flex_permille": 500,
        "background_permille": 500,
        "batch_permille": 500,
    }
    return PriceVersion(**(defaults | fields))
