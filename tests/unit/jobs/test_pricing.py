"""What requests cost, and what they may cost at most."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.events import Usage
from inference.request import Lane
from jobs.amounts import MAX_MICROS
from jobs.models import Price
from jobs.pricing import (
    TEMPLATE_TOKENS,
    PriceList,
    PriceVersion,
    cost_micros,
    load_prices,
    reserve_micros,
)

START = datetime(2026, 8, 1, tzinfo=UTC)


def make_price(**changes: Any) -> PriceVersion:
    fields: dict[str, Any] = {
        "id": 1,
        "model": "scripted",
        "effective_from": START,
        "input_micros_per_mtok": 3_000_000,
        "cached_input_micros_per_mtok": 300_000,
        "cache_write_micros_per_mtok": 3_750_000,
        "output_micros_per_mtok": 15_000_000,
        "flex_permille": 500,
        "background_permille": 600,
        "batch_permille": 400,
    }
    return PriceVersion(**fields | changes)


def usage(prompt: int, output: int, cached: int = 0, written: int = 0) -> Usage:
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=cached,
        cache_written_tokens=written,
        output_tokens=output,
    )


@pytest.mark.parametrize(
    ("tokens", "micros"),
    [
        (usage(1_000_000, 0), 3_000_000),
        (usage(0, 1_000_000), 15_000_000),
        (usage(1_000_000, 0, cached=1_000_000), 300_000),
        (usage(1_000_000, 0, written=1_000_000), 3_750_000),
        (usage(1000, 100, cached=600, written=300), 180 + 1125 + 300 + 1500),
        (usage(0, 0), 0),
    ],
)
def test_each_kind_of_token_has_its_price(tokens: Usage, micros: int) -> None:
    assert cost_micros(make_price(), tokens, Lane.REALTIME) == micros


@pytest.mark.parametrize(
    ("lane", "micros"),
    [(Lane.REALTIME, 3000), (Lane.FLEX, 1500), (Lane.BACKGROUND, 1800), (Lane.BATCH, 1200)],
)
def test_a_lane_has_its_factor(lane: Lane, micros: int) -> None:
    assert cost_micros(make_price(), usage(1000, 0), lane) == micros


@pytest.mark.parametrize(
    ("price", "micros"), [(499_999, 0), (500_000, 1), (1_499_999, 1), (1_500_000, 2)]
)
def test_a_sum_is_rounded_once_and_half_up(price: int, micros: int) -> None:
    by_token = make_price(input_micros_per_mtok=price)
    assert cost_micros(by_token, usage(1, 0), Lane.REALTIME) == micros


def test_parts_are_not_rounded_by_themselves() -> None:
    price = make_price(input_micros_per_mtok=400_000, output_micros_per_mtok=400_000)
    assert cost_micros(price, usage(1, 1), Lane.REALTIME) == 1


def test_without_a_price_a_request_is_free() -> None:
    assert cost_micros(None, usage(1000, 1000), Lane.REALTIME) == 0
    assert reserve_micros(None, 1000, 1000, 8192, Lane.REALTIME) == 0


def test_a_reservation_is_of_the_whole_body_and_the_longest_answer() -> None:
    held = reserve_micros(make_price(), 976, 200, 8192, Lane.REALTIME)
    assert held == (976 + TEMPLATE_TOKENS) * 15 // 4 + 200 * 15
    assert reserve_micros(make_price(), 976, 200, 8192, Lane.FLEX) == held // 2


def test_a_reservation_is_never_of_more_than_the_context() -> None:
    whole = 8000 * 15 // 4 + 8000 * 15
    assert reserve_micros(make_price(), 10**9, 10**9, 8000, Lane.REALTIME) == whole


def test_a_reservation_of_a_prompt_with_images_is_of_the_whole_context() -> None:
    assert reserve_micros(make_price(), None, 0, 8000, Lane.REALTIME) == 8000 * 15 // 4


def test_a_reservation_for_a_prompt_that_another_pays_for_is_of_the_answer_alone() -> None:
    assert reserve_micros(make_price(), 0, 200, 8192, Lane.REALTIME) == 200 * 15


def test_a_reservation_is_a_number_that_redis_holds_exactly() -> None:
    price = make_price(output_micros_per_mtok=2**62)
    assert reserve_micros(price, 1, 10**6, 10**6, Lane.REALTIME) == MAX_MICROS


prices = st.builds(
    make_price,
    input_micros_per_mtok=st.integers(0, 10**8),
    cached_input_micros_per_mtok=st.integers(0, 10**8),
    cache_write_micros_per_mtok=st.integers(0, 10**8),
    output_micros_per_mtok=st.integers(0, 10**8),
    flex_permille=st.integers(0, 10_000),
)


@given(prices, st.sampled_from(Lane), st.data())
def test_a_request_never_costs_more_than_was_reserved(
    price: PriceVersion, lane: Lane, data: st.DataObject
) -> None:
    body_bytes = data.draw(st.integers(1, 100_000))
    max_tokens = data.draw(st.integers(1, 100_000))
    context = data.draw(st.integers(1, 100_000))
    prompt = data.draw(st.integers(0, min(body_bytes + TEMPLATE_TOKENS, context)))
    cached = data.draw(st.integers(0, prompt))
    written = data.draw(st.integers(0, prompt - cached))
    output = data.draw(st.integers(0, min(max_tokens, context)))
    used = usage(prompt, output, cached, written)
    held = reserve_micros(price, body_bytes, max_tokens, context, lane)
    assert 0 <= cost_micros(price, used, lane) <= held


@given(prices, st.sampled_from(Lane), st.integers(0, 10**7), st.integers(0, 10**7))
def test_a_cost_is_the_exact_one_rounded(
    price: PriceVersion, lane: Lane, prompt: int, output: int
) -> None:
    exact = Fraction(
        (prompt * price.input_micros_per_mtok + output * price.output_micros_per_mtok)
        * price.permille(lane),
        10**9,
    )
    assert abs(cost_micros(price, usage(prompt, output), lane) - exact) <= Fraction(1, 2)


def test_the_version_in_force_is_the_last_that_has_begun() -> None:
    first = make_price(id=1)
    second = make_price(id=2, effective_from=START + timedelta(days=10))
    other = make_price(id=3, model="other")
    listed = PriceList([second, other, first])
    moment = timedelta(microseconds=1)
    assert listed.at("scripted", START - moment) is None
    assert listed.at("scripted", START) is first
    assert listed.at("scripted", second.effective_from - moment) is first
    assert listed.at("scripted", second.effective_from) is second
    assert listed.at("scripted", START + timedelta(days=999)) is second
    assert listed.at("unknown", START) is None


@pytest.mark.django_db
def test_it_reads_every_version_from_the_database() -> None:
    version = make_price()
    fields = {name: getattr(version, name) for name in version.__struct_fields__}
    Price.objects.create(**fields)
    assert load_prices().at("scripted", START) == version
