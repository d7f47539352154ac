"""Balances, holds and spend caps."""

from __future__ import annotations

import msgspec
import pytest

from jobs.amounts import MAX_MICROS
from jobs.quota.claims import (
    Capped,
    Claim,
    Exhausted,
    Granted,
    Limits,
    Spend,
    Unknown,
)
from tests.unit.jobs.quota.kit import (
    DAY_MS,
    NOON,
    TEAM,
    QuotaKit,
    make_claim,
    make_state,
    prepaid,
    settled,
)


def capped(hold_micros: int, daily: int | None = None, monthly: int | None = None) -> Claim:
    spend = Spend(
        hold_micros=hold_micros,
        prepaid=False,
        daily_cap_micros=daily,
        monthly_cap_micros=monthly,
    )
    return make_claim(spend=spend)


async def test_an_account_must_be_known(kit: QuotaKit) -> None:
    claim = make_claim(spend=prepaid(1))
    assert isinstance(await kit.quota.admit(claim), Unknown)
    await kit.quota.load(TEAM, make_state())
    assert isinstance(await kit.quota.admit(claim), Granted)


async def test_a_balance_is_not_looked_at_for_what_costs_nothing(kit: QuotaKit) -> None:
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(0))), Granted)


async def test_holds_never_exceed_the_balance(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=1000))
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(600))), Granted)
    refusal = await kit.quota.admit(make_claim(spend=prepaid(401)))
    assert isinstance(refusal, Exhausted)
    assert (refusal.balance_micros, refusal.held_micros) == (1000, 600)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(400))), Granted)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(1))), Exhausted)


async def test_a_hold_stays_until_the_ledger_has_its_entry(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=1000))
    first = make_claim(spend=prepaid(1000))
    await kit.quota.admit(first)
    await kit.quota.release(first, 10, 10)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(1))), Exhausted)
    after = make_state(version=2, balance_micros=700)
    kit.settler.settle(TEAM, after, [settled(first)])
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(701))), Exhausted)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(700))), Granted)


async def test_settling_twice_drops_a_hold_once(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=1000))
    first, second = make_claim(spend=prepaid(400)), make_claim(spend=prepaid(400))
    await kit.quota.admit(first)
    await kit.quota.admit(second)
    for _ in range(2):
        kit.settler.settle(TEAM, make_state(version=2), [settled(first)])
    refusal = await kit.quota.admit(make_claim(spend=prepaid(1000)))
    assert isinstance(refusal, Exhausted)
    assert refusal.held_micros == 400


async def test_a_request_that_asks_again_holds_once(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=1000))
    claim = make_claim(spend=prepaid(1000))
    assert isinstance(await kit.quota.admit(claim), Granted)
    assert isinstance(await kit.quota.admit(claim), Granted)
    kit.settler.settle(TEAM, make_state(), [settled(claim)])
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(1000))), Granted)


async def test_a_request_that_may_cost_more_than_before_holds_the_most(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=1000))
    claim = make_claim(spend=prepaid(600))
    dearer = msgspec.structs.replace(claim, spend=prepaid(900))
    for asked in (claim, dearer, claim, dearer):
        assert isinstance(await kit.quota.admit(asked), Granted)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(101))), Exhausted)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(100))), Granted)
    kit.settler.settle(TEAM, make_state(version=2, balance_micros=1000), [settled(claim)])
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(900))), Granted)


async def test_a_request_that_may_cost_too_much_now_holds_what_it_did(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=1000))
    claim = make_claim(spend=prepaid(600))
    await kit.quota.admit(claim)
    dearer = msgspec.structs.replace(claim, spend=prepaid(1001))
    refusal = await kit.quota.admit(dearer)
    assert isinstance(refusal, Exhausted)
    assert (refusal.balance_micros, refusal.held_micros) == (1000, 600)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(400))), Granted)


async def test_a_cap_counts_what_a_request_may_cost_more(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state())
    claim = capped(60, daily=100)
    await kit.quota.admit(claim)
    for hold_micros, answer in ((101, Capped), (100, Granted)):
        again = msgspec.structs.replace(capped(hold_micros, daily=100), request_id=claim.request_id)
        assert isinstance(await kit.quota.admit(again), answer)


async def test_a_refused_request_holds_nothing(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=1000))
    refusing = make_claim(spend=prepaid(900), key=Limits(requests_per_minute=0))
    assert not isinstance(await kit.quota.admit(refusing), Granted)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(1000))), Granted)


async def test_a_request_that_never_began_holds_nothing(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=1000))
    claim = make_claim(spend=prepaid(1000), team=Limits(max_concurrent=1))
    for _ in range(2):
        assert isinstance(await kit.quota.admit(claim), Granted)
        await kit.quota.withdraw(claim)
    assert "claims" not in kit.kept()


async def test_a_hold_that_is_never_settled_is_dropped_a_day_after_its_lease(
    kit: QuotaKit,
) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=1000))
    await kit.quota.admit(make_claim(spend=prepaid(1000), lease_ms=5000))
    kit.advance(DAY_MS + 4999)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(1))), Exhausted)
    kit.advance(1)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(1000))), Granted)


async def test_what_should_have_ended_and_is_not_settled_is_told_of(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=1000))
    silent, ended, flying = (
        make_claim(spend=prepaid(100), lease_ms=lease_ms) for lease_ms in (5000, 5000, 70_000)
    )
    for claim in (silent, ended, flying):
        await kit.quota.admit(claim)
    await kit.quota.release(ended, 1, 1)
    kit.advance(64_999)
    assert kit.settler.late(TEAM, 60.0) == []
    kit.advance(1)
    late = kit.settler.late(TEAM, 60.0)
    assert set(late) == {silent.request_id, ended.request_id}
    assert list(kit.settler.teams()) == [TEAM]
    kit.settler.settle(TEAM, make_state(balance_micros=1000), [settled(silent), settled(ended)])
    assert kit.settler.late(TEAM, 60.0) == []
    assert kit.holders()["team"]["held"] == 100


async def test_an_older_state_changes_nothing_but_ends_its_requests(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(version=5, balance_micros=500))
    claim = make_claim(spend=prepaid(500))
    await kit.quota.admit(claim)
    kit.settler.settle(TEAM, make_state(version=4, balance_micros=9999), [settled(claim)])
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(501))), Exhausted)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(500))), Granted)


async def test_a_state_of_the_same_version_is_taken_over(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(day_spent_micros=100))
    await kit.quota.load(TEAM, make_state(day_spent_micros=0))
    assert isinstance(await kit.quota.admit(capped(100, daily=100)), Granted)


@pytest.mark.parametrize("period", ["daily", "monthly"])
async def test_caps_count_what_is_spent_and_what_is_held(kit: QuotaKit, period: str) -> None:
    await kit.quota.load(TEAM, make_state(day_spent_micros=500, month_spent_micros=500))
    assert isinstance(await kit.quota.admit(capped(300, **{period: 1000})), Granted)
    refusal = await kit.quota.admit(capped(201, **{period: 1000}))
    assert isinstance(refusal, Capped)
    assert (refusal.period, refusal.cap_micros) == (period, 1000)
    assert (refusal.spent_micros, refusal.held_micros) == (500, 300)
    assert isinstance(await kit.quota.admit(capped(200, **{period: 1000})), Granted)


async def test_a_cap_needs_no_balance(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=-5000))
    assert isinstance(await kit.quota.admit(capped(10, daily=10)), Granted)


async def test_a_new_day_and_a_new_month_begin_at_midnight(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(day_spent_micros=90, month_spent_micros=90))
    kit.set_time(NOON + DAY_MS // 2 - 1)
    assert isinstance(await kit.quota.admit(capped(50, daily=100)), Capped)
    kit.advance(1)
    assert isinstance(await kit.quota.admit(capped(50, daily=100)), Granted)
    assert isinstance(await kit.quota.admit(capped(50, monthly=100)), Capped)
    kit.advance(3 * DAY_MS)
    assert isinstance(await kit.quota.admit(capped(50, monthly=100)), Granted)


async def test_amounts_are_exact_to_the_largest(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=MAX_MICROS))
    first = make_claim(spend=prepaid(MAX_MICROS - 1))
    assert isinstance(await kit.quota.admit(first), Granted)
    refusal = await kit.quota.admit(make_claim(spend=prepaid(2)))
    assert isinstance(refusal, Exhausted)
    assert (refusal.balance_micros, refusal.held_micros) == (MAX_MICROS, MAX_MICROS - 1)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(1))), Granted)


async def test_a_balance_beyond_the_largest_counts_as_it(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=3 * MAX_MICROS))
    await kit.quota.admit(make_claim(spend=prepaid(MAX_MICROS)))
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(1))), Exhausted)


async def test_many_requests_are_settled_in_one_step(kit: QuotaKit) -> None:
    await kit.quota.load(TEAM, make_state(balance_micros=500))
    claims = [make_claim(spend=prepaid(1), key_id=f"key-{index % 3}") for index in range(500)]
    for claim in claims:
        await kit.quota.admit(claim)
    assert isinstance(await kit.quota.admit(make_claim(spend=prepaid(1))), Exhausted)
    kit.settler.settle(TEAM, make_state(version=2), [settled(claim) for claim in claims])
    assert kit.kept() == {"holders"}
    assert {each["flying"] for each in kit.holders().values()} == {0}
