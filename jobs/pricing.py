"""What a request costs, and the most that it can cost: integer arithmetic and nothing else.

Prices are micro-units of the currency for a million tokens, and a lane's factor is in thousandths.
So a sum of tokens times prices is divided once, by 10^9, and rounded half up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

import msgspec

from inference.events import Usage
from inference.request import Lane
from jobs.amounts import MAX_MICROS
from jobs.models import Price

_FULL_PERMILLE = 1000
_SCALE = 1_000_000 * _FULL_PERMILLE
# What a chat template may add to a prompt that the body does not have: its own words and marks.
TEMPLATE_TOKENS = 1024


class PriceVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a model's price. The fields mean what `jobs.models.Price` says they mean."""

    id: int
    model: str
    effective_from: datetime
    input_micros_per_mtok: int
    cached_input_micros_per_mtok: int
    cache_write_micros_per_mtok: int
    output_micros_per_mtok: int
    flex_permille: int
    background_permille: int
    batch_permille: int

    def permille(self, lane: Lane) -> int:
        """Return this lane's factor in thousandths; realtime is what the prices are for."""
        match lane:
            case Lane.REALTIME:
                return _FULL_PERMILLE
            case Lane.FLEX:
                return self.flex_permille
            case Lane.BACKGROUND:
                return self.background_permille
            case Lane.BATCH:
                return self.batch_permille


class PriceList:
    """An immutable snapshot of every version of every price."""

    def __init__(self, versions: Iterable[PriceVersion]) -> None:
        self._by_model: dict[str, list[PriceVersion]] = defaultdict(list)
        for version in sorted(versions, key=_begins):
            self._by_model[version.model].append(version)

    def at(self, model: str, when: datetime) -> PriceVersion | None:
        """Return the version in force at this moment (aware of its zone); None: it is free."""
        versions = self._by_model.get(model, [])
        index = bisect_right(versions, when, key=_begins)
        return versions[index - 1] if index else None


def load_prices() -> PriceList:
    """Read every version from the database."""
    fields = PriceVersion.__struct_fields__
    return PriceList(PriceVersion(**row) for row in Price.objects.values(*fields))


def cost_micros(price: PriceVersion | None, usage: Usage, lane: Lane) -> int:
    """Return what these tokens cost in micro-units; without a price, nothing."""
    if price is None:
        return 0
    plain = usage.prompt_tokens - usage.cached_tokens - usage.cache_written_tokens
    millionths = (
        plain * price.input_micros_per_mtok
        + usage.cached_tokens * price.cached_input_micros_per_mtok
        + usage.cache_written_tokens * price.cache_write_micros_per_mtok
        + usage.output_tokens * price.output_micros_per_mtok
    )
    return _scaled(millionths, price.permille(lane))


def reserve_micros(
    price: PriceVersion | None,
    body_bytes: int | None,
    max_tokens: int,
    context_tokens: int,
    lane: Lane,
) -> int:
    """Return the most that a request can cost, before anything is known of its prompt.

    No tokenizer makes more tokens than the body has bytes, but for what the template adds. None
    stands for a prompt whose length the body does not bound, as with images: all of the context;
    0 for one that another request pays for. What `cost_micros` says at the end, by the
    same price, is never more.
    """
    if price is None:
        return 0
    longest = context_tokens
    if body_bytes is not None:
        longest = min(body_bytes + TEMPLATE_TOKENS, context_tokens) if body_bytes else 0
    dearest = max(
        price.input_micros_per_mtok,
        price.cached_input_micros_per_mtok,
        price.cache_write_micros_per_mtok,
    )
    millionths = longest * dearest + min(max_tokens, context_tokens) * price.output_micros_per_mtok
    return min(_scaled(millionths, price.permille(lane)), MAX_MICROS)


def _begins(version: PriceVersion) -> datetime:
    return version.effective_from


def _scaled(millionths: int, permille: int) -> int:
    return (millionths * permille + _SCALE // 2) // _SCALE
