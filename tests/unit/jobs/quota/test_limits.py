"""Rates and concurrency, of keys and teams."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.quota.claims import Granted, Holder, Limit, Limits, RateLimited
from tests.unit.jobs.quota.kit import (
    KEY,
    MINUTE_MS,
    TEAM,
    Bucket,
    QuotaKit,
    buckets,
    make_claim,
    make_state,
    settled,
)


def remaining(decision: Granted | RateLimited) -> dict[tuple[str, str], int]:
    return {(bucket.holder, bucket.kind): bucket.remaining for bucket in buckets(decision)}


async def granted(kit: QuotaKit, **changes: Any) -> Granted:
    decision = await kit.quota.admit(make_claim(**changes))
    assert isinstance(decision, Granted)
    return decision


async def refused(kit: QuotaKit, **changes: Any) -> RateLimited:
    decision = await kit.quota.admit(make_claim(**changes))
    assert isinstance(decision, RateLimited)
    return decision


async def test_it_lets_in_as_many_requests_as_the_limit_says(kit: QuotaKit) -> None:
    limits = Limits(requests_per_minute=3)
    for left in (2, 1, 0):
        assert remaining(await granted(kit, key=limits)) == {("key", "requests"): left}
    refusal = await refused(kit, key=limits)
    assert (refusal.holder, refusal.kind, refusal.limit) == (Holder.KEY, Limit.REQUESTS, 3)


async def test_it_passes_exactly_when_it_said_it_would(kit: QuotaKit) -> None:
    limits = Limits(requests_per_minute=7)
    for _ in range(7):
        await granted(kit, team=limits)
    wait_ms = (await refused(kit, team=limits)).wait_ms
    assert wait_ms == 8572  # a minute / 7, rounded up
    kit.advance(wait_ms - 1)
    assert (await refused(kit, team=limits)).wait_ms == 1
    kit.advance(1)
    await granted(kit, team=limits)


async def test_a_bucket_is_never_fuller_than_its_limit(kit: QuotaKit) -> None:
    limits = Limits(requests_per_minute=2)
    await granted(kit, key=limits)
    kit.advance(60 * MINUTE_MS)
    assert remaining(await granted(kit, key=limits)) == {("key", "requests"): 1}


async def test_nothing_is_taken_when_anything_refuses(kit: QuotaKit) -> None:
    team, key = Limits(requests_per_minute=5), Limits(max_concurrent=1)
    await granted(kit, team=team, key=key)
    assert remaining(await refused(kit, team=team, key=key)) == {("team", "requests"): 4}
    assert remaining(await refused(kit, team=team, key=key)) == {("team", "requests"): 4}


async def test_each_key_has_limits_of_its_own_and_the_team_has_one_for_all(kit: QuotaKit) -> None:
    key, team = Limits(requests_per_minute=1), Limits(requests_per_minute=2)
    await granted(kit, key=key, team=team)
    assert (await refused(kit, key=key, team=team)).holder is Holder.KEY
    await granted(kit, key=key, team=team, key_id="key-two")
    refusal = await refused(kit, key=key, team=team, key_id="key-three")
    assert refusal.holder is Holder.TEAM


async def test_teams_do_not_meet(kit: QuotaKit) -> None:
    limits = Limits(requests_per_minute=1, max_concurrent=1)
    await granted(kit, team=limits)
    await granted(kit, team=limits, team_id=8)


async def test_the_limit_that_takes_longest_is_the_one_that_is_named(kit: QuotaKit) -> None:
    limits = Limits(requests_per_minute=1, input_tokens_per_minute=6000)
    await granted(kit, key=limits, input_tokens=6000)
    refusal = await refused(kit, key=limits, input_tokens=100)
    assert (refusal.kind, refusal.wait_ms) == (Limit.REQUESTS, MINUTE_MS)


@pytest.mark.parametrize("holder", ["key", "team"])
async def test_only_so_many_requests_run_at_once(kit: QuotaKit, holder: str) -> None:
    limits = {holder: Limits(max_concurrent=2)}
    first = make_claim(**limits)
    assert isinstance(await kit.quota.admit(first), Granted)
    await granted(kit, **limits)
    refusal = await refused(kit, **limits)
    assert (refusal.holder, refusal.kind, refusal.limit) == (holder, "concurrency", 2)
    await kit.quota.release(first, 0, 0)
    await granted(kit, **limits)
    await refused(kit, **limits)


async def test_a_place_comes_back_once_however_often_it_is_given_back(kit: QuotaKit) -> None:
    limits = Limits(max_concurrent=2)
    first = make_claim(key=limits)
    await kit.quota.admit(first)
    await granted(kit, key=limits)
    for _ in range(2):
        await kit.quota.release(first, 0, 0)
        kit.settler.settle(first.team_id, make_state(), [settled(first)])
    await granted(kit, key=limits)
    await refused(kit, key=limits)


async def test_a_place_that_nobody_gives_back_is_free_when_its_lease_ends(kit: QuotaKit) -> None:
    limits = Limits(max_concurrent=1)
    await granted(kit, team=limits, key=limits, lease_ms=500)
    kit.advance(499)
    await refused(kit, team=limits, key=limits)
    kit.advance(1)
    await granted(kit, team=limits, key=limits)


async def test_an_estimate_is_put_right_by_the_real_prompt(kit: QuotaKit) -> None:
    limits = Limits(input_tokens_per_minute=1000)
    claim = make_claim(key=limits, team=limits, input_tokens=600)
    await kit.quota.admit(claim)
    await kit.quota.release(claim, 150, 40)
    left = remaining(await granted(kit, key=limits, team=limits, input_tokens=0))
    assert left == {("key", "input_tokens"): 850, ("team", "input_tokens"): 850}


async def test_output_is_taken_when_it_is_known_even_into_debt(kit: QuotaKit) -> None:
    limits = Limits(output_tokens_per_minute=600)
    claim = make_claim(key=limits)
    assert remaining(await kit.quota.admit(claim)) == {("key", "output_tokens"): 600}  # type: ignore[arg-type]
    await kit.quota.release(claim, 0, 900)
    refusal = await refused(kit, key=limits)
    # 300 of debt, and one more to begin with.
    assert (refusal.kind, refusal.wait_ms) == (Limit.OUTPUT_TOKENS, 30_100)
    assert buckets(refusal)[0].remaining == 0


async def test_what_is_refilled_while_a_request_runs_is_not_lost_or_won(kit: QuotaKit) -> None:
    limits = Limits(output_tokens_per_minute=600)
    claim = make_claim(key=limits, lease_ms=10 * MINUTE_MS)
    await kit.quota.admit(claim)
    kit.advance(5 * MINUTE_MS)
    await kit.quota.release(claim, 0, 600)
    assert (await refused(kit, key=limits)).wait_ms == 100


@pytest.mark.parametrize("settled_first", [False, True])
async def test_tokens_are_counted_once_whoever_says_them(
    kit: QuotaKit, settled_first: bool
) -> None:
    limits = Limits(input_tokens_per_minute=1000, output_tokens_per_minute=1000)
    claim = make_claim(key=limits, input_tokens=500)
    await kit.quota.admit(claim)
    if settled_first:
        kit.settler.settle(claim.team_id, make_state(), [settled(claim, 100, 200)])
        await kit.quota.release(claim, 100, 200)
    else:
        # The gateway of a client that left knows less than the engine.
        await kit.quota.release(claim, 0, 20)
        await kit.quota.release(claim, 0, 20)
        kit.settler.settle(claim.team_id, make_state(), [settled(claim, 100, 200)])
        await kit.quota.release(claim, 0, 20)
    left = remaining(await granted(kit, key=limits, input_tokens=0))
    assert left == {("key", "input_tokens"): 900, ("key", "output_tokens"): 800}


async def test_a_prompt_beyond_the_whole_limit_passes_when_the_bucket_is_full(
    kit: QuotaKit,
) -> None:
    limits = Limits(input_tokens_per_minute=100)
    await granted(kit, key=limits, input_tokens=250)
    refusal = await refused(kit, key=limits, input_tokens=250)
    assert refusal.wait_ms == 150_000
    kit.advance(150_000)
    await granted(kit, key=limits, input_tokens=250)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(requests_per_minute=0),
        Limits(input_tokens_per_minute=0),
        Limits(output_tokens_per_minute=0),
    ],
)
async def test_a_limit_of_nothing_lets_nothing_in(kit: QuotaKit, limits: Limits) -> None:
    assert (await refused(kit, key=limits, input_tokens=0)).wait_ms == MINUTE_MS


async def test_a_request_that_asks_again_is_counted_once(kit: QuotaKit) -> None:
    limits = Limits(requests_per_minute=5, max_concurrent=1)
    claim = make_claim(key=limits)
    assert await kit.quota.admit(claim) == await kit.quota.admit(claim)
    await kit.quota.release(claim, 0, 0)
    assert remaining(await granted(kit, key=limits)) == {("key", "requests"): 3}


async def test_a_limit_that_was_changed_counts_from_now_on(kit: QuotaKit) -> None:
    await granted(kit, key=Limits(requests_per_minute=10))
    refusing = Limits(requests_per_minute=3)
    for _ in range(3):
        await granted(kit, key=refusing)
    await refused(kit, key=refusing)


async def test_a_limit_that_was_away_comes_back_full(kit: QuotaKit) -> None:
    limits = Limits(requests_per_minute=2)
    for _ in range(2):
        await granted(kit, key=limits)
    assert remaining(await granted(kit)) == {}
    assert remaining(await granted(kit, key=limits)) == {("key", "requests"): 1}


async def test_the_largest_limit_is_exact(kit: QuotaKit) -> None:
    limits = Limits(input_tokens_per_minute=2**62)
    decision = await granted(kit, key=limits, input_tokens=1)
    assert buckets(decision) == [
        Bucket(
            holder=Holder.KEY,
            kind=Limit.INPUT_TOKENS,
            limit=10**11,
            level=(10**11 - 1) * 60_000,
        )
    ]


async def test_nothing_is_left_of_a_key_once_its_buckets_are_full(kit: QuotaKit) -> None:
    limits = Limits(requests_per_minute=100, max_concurrent=3)
    claim = make_claim(key=limits, team=limits)
    await kit.quota.admit(claim)
    assert kit.settler.late(TEAM, 0.0) == []
    assert kit.holders().keys() == {"team", KEY}
    await kit.quota.release(claim, 10, 0)
    kit.settler.settle(TEAM, make_state(), [settled(claim, 10, 0)])
    kit.advance(599)
    kit.settler.late(TEAM, 0.0)
    assert kit.holders().keys() == {"team", KEY}
    kit.advance(1)
    kit.settler.late(TEAM, 0.0)
    # What is known of its account stays.
    assert kit.holders().keys() == {"team"}
    assert kit.kept() == {"holders"}


async def test_what_is_not_limited_neither_counts_nor_is_refused(kit: QuotaKit) -> None:
    limits = Limits(requests_per_minute=2, input_tokens_per_minute=100, max_concurrent=1)
    await granted(kit, team=limits, key=limits)
    work = make_claim(limited=False)
    decision = await kit.quota.admit(work)
    assert isinstance(decision, Granted)
    await kit.quota.end(TEAM, [settled(work, 50, 50)])
    refusal = await refused(kit, team=limits, key=limits)
    assert refusal.kind is Limit.CONCURRENCY
    assert remaining(refusal)["team", "requests"] == 1
    assert remaining(refusal)["team", "input_tokens"] == 90
