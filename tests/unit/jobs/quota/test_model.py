"""The scripts against a plain model of them, and against the ledger that they guard."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from django.conf import settings
from hypothesis import settings as run_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jobs.ledger import AccountState
from jobs.quota.claims import Claim, Granted, Limits, Spend
from tests.unit.jobs.quota.kit import (
    DAY_MS,
    NOON,
    TEAM,
    QuotaKit,
    make_claim,
    make_state,
    settled,
)
from tests.unit.jobs.quota.model import QuotaModel

T = TypeVar("T")

KEYS = ("key-one", "key-two")
tokens = st.integers(0, 300)
rates = st.none() | st.integers(0, 200)
limits = st.builds(
    Limits,
    requests_per_minute=st.none() | st.integers(0, 6),
    input_tokens_per_minute=rates,
    output_tokens_per_minute=rates,
    max_concurrent=st.none() | st.integers(1, 4),
)
caps = st.none() | st.integers(0, 500)


class QuotaMachine(RuleBasedStateMachine):
    """One team with two keys, and a ledger that charges no more than was held."""

    @initialize(
        team=limits, first=limits, second=limits, daily=caps, monthly=caps, prepaid=st.booleans()
    )
    def begin(
        self,
        team: Limits,
        first: Limits,
        second: Limits,
        daily: int | None,
        monthly: int | None,
        prepaid: bool,
    ) -> None:
        self.prepaid = prepaid
        self.loop = asyncio.new_event_loop()
        self.kit = QuotaKit(settings.REDIS_URL)
        self.limits = {"team": team, KEYS[0]: first, KEYS[1]: second}
        self.daily, self.monthly = daily, monthly
        self.model = QuotaModel(NOON, self.limits)
        self.ledger: list[tuple[int, int]] = [(NOON, 400)]
        self.states: list[AccountState] = []
        self.claims: list[Claim] = []
        self.billed: set[str] = set()

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.wait(self.kit.close())
            self.loop.close()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    async def load(self, state: AccountState) -> None:
        await self.kit.quota.load(TEAM, state)

    def draw_some(self, data: st.DataObject) -> list[Claim]:
        return data.draw(st.lists(st.sampled_from(self.claims), max_size=3)) if self.claims else []

    def read_state(self) -> AccountState:
        """What the database says."""
        here = make_state(self.model.now_ms)
        spent = [(make_state(at_ms), -amount) for at_ms, amount in self.ledger if amount < 0]
        state = make_state(
            self.model.now_ms,
            version=len(self.ledger),
            balance_micros=sum(amount for _, amount in self.ledger),
            day_spent_micros=sum(cost for then, cost in spent if then.day == here.day),
            month_spent_micros=sum(cost for then, cost in spent if then.month == here.month),
        )
        self.states.append(state)
        return state

    @rule(milliseconds=st.sampled_from([1, 900, 7_000, 61_000, DAY_MS // 2, DAY_MS + 30_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.kit.advance(milliseconds)
        self.model.advance(milliseconds)

    @rule(
        key=st.sampled_from(KEYS),
        input_tokens=tokens,
        hold=st.integers(0, 150),
        lease_ms=st.sampled_from([5_000, 120_000]),
    )
    def a_request_arrives(self, key: str, input_tokens: int, hold: int, lease_ms: int) -> None:
        claim = make_claim(
            key_id=key,
            input_tokens=input_tokens,
            lease_ms=lease_ms,
            key=self.limits[key],
            team=self.limits["team"],
            spend=Spend(
                hold_micros=hold,
                prepaid=self.prepaid,
                daily_cap_micros=self.daily,
                monthly_cap_micros=self.monthly,
            ),
        )
        decision = self.wait(self.kit.quota.admit(claim))
        assert decision == self.model.admit(claim)
        if isinstance(decision, Granted):
            self.claims.append(claim)

    @rule(data=st.data(), more=st.sampled_from([0, 70]))
    def a_request_asks_again(self, data: st.DataObject, more: int) -> None:
        for claim in self.draw_some(data):
            if claim.request_id not in self.model.requests:
                continue
            spend = claim.spend
            assert spend
            dearer = msgspec.structs.replace(spend, hold_micros=spend.hold_micros + more)
            again = msgspec.structs.replace(claim, spend=dearer)
            assert self.wait(self.kit.quota.admit(again)) == self.model.admit(again)

    @rule(data=st.data(), prompt=tokens, output=tokens)
    def a_request_ends(self, data: st.DataObject, prompt: int, output: int) -> None:
        for claim in self.draw_some(data):
            self.wait(self.kit.quota.release(claim, prompt, output))
            self.model.release(claim.request_id, prompt, output)

    @rule(data=st.data(), prompt=tokens, output=tokens)
    def the_recorder_settles(self, data: st.DataObject, prompt: int, output: int) -> None:
        chosen = (
            data.draw(st.lists(st.sampled_from(self.claims), max_size=3)) if self.claims else []
        )
        for claim in chosen:
            if claim.request_id in self.model.requests and claim.request_id not in self.billed:
                self.billed.add(claim.request_id)
                spend = self.model.requests[claim.request_id].claim.spend
                hold = spend.hold_micros if spend else 0
                self.ledger.append((self.model.now_ms, -data.draw(st.integers(0, hold))))
        state = self.read_state()
        ended = [settled(claim, prompt, output) for claim in chosen]
        self.kit.settler.settle(TEAM, state, ended)
        self.model.settle(state, ended)

    @rule(after_s=st.sampled_from([0, 30]))
    def the_recorder_looks_for_what_is_late(self, after_s: int) -> None:
        late = self.kit.settler.late(TEAM, after_s)
        assert set(late) == self.model.late(1000 * after_s)

    @rule(data=st.data())
    def an_older_state_arrives_late(self, data: st.DataObject) -> None:
        state = data.draw(st.sampled_from(self.states)) if self.states else self.read_state()
        if state.version < len(self.ledger) or state == self.states[-1]:
            self.wait(self.load(state))
            self.model.settle(state, [])

    @rule(amount=st.integers(1, 300))
    def somebody_pays(self, amount: int) -> None:
        self.ledger.append((self.model.now_ms, amount))

    @invariant()
    def what_is_kept_adds_up(self) -> None:
        if not hasattr(self, "kit"):
            return
        holders = self.kit.holders()
        team = holders.pop("team", {})
        assert self.kit.requests() == set(self.model.requests)
        assert team.get("held", 0) == self.model.held
        assert team.get("known", 0) == len(self.model.requests)
        assert sum(each["known"] for each in holders.values()) == len(self.model.requests)
        flying = [self.model.flying(key) for key in holders]
        assert [each["flying"] for each in holders.values()] == flying
        assert team.get("flying", 0) == sum(flying) == self.model.flying()
        waited_for = [self.kit.sync.zcard(key) for key in self.kit.keys[2:]]
        assert sum(waited_for) == len(self.model.requests)

    @invariant()
    def nobody_owes_anything(self) -> None:
        if hasattr(self, "kit") and self.prepaid:
            assert sum(amount for _, amount in self.ledger) >= 0


QuotaMachine.TestCase.settings = run_settings(max_examples=60, stateful_step_count=40)
TestQuotaMachine = QuotaMachine.TestCase
