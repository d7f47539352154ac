"""Whatever happens to requests and processes, the ledger is what an independent count makes."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, NamedTuple

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from inference.errors import TandemError
from inference.events import Usage
from inference.request import Lane
from inference.transport.records import Completed, Ending, Record
from jobs import ledger
from jobs.models import LedgerEntry, Price, RequestRecord, UsageDay
from jobs.recorder.batch import write
from jobs.recorder.sweep import settle_overdue
from jobs.recount import Recount
from tests.records import Bill, Said, admitted, closed, completed, new_id, unserved

pytestmark = pytest.mark.django_db(transaction=True)

LANES = {Lane.REALTIME: 1000, Lane.FLEX: 500, Lane.BATCH: 333}
FAR = datetime(2100, 1, 1, tzinfo=UTC)
teams = count(1)
# Of every three attempts one is finished.
endings = st.one_of(st.just(Ending.FINISHED), st.sampled_from(Ending), st.sampled_from(Ending))
usages = st.builds(
    lambda plain, cached, written, output: Usage(
        prompt_tokens=plain + cached + written,
        cached_tokens=cached,
        cache_written_tokens=written,
        output_tokens=output,
    ),
    *[st.integers(0, 1000)] * 4,
)
# One moment for all of it: no run is cut in two by midnight.
NOW = timezone.now()


class Life(NamedTuple):
    """What happens to a request: attempts and how they end, and whose records are lost."""

    lane: Lane
    attempts: list[tuple[Ending, Usage]]
    end: Ending
    killed: set[int]


lives = st.builds(
    Life,
    st.sampled_from(list(LANES)),
    st.lists(st.tuples(endings, usages), max_size=3),
    st.sampled_from([Ending.CANCELLED, Ending.TIMEOUT, Ending.FAILED]),
    st.one_of(st.just(set()), st.sets(st.integers(0, 4), max_size=2)),
)


class KilledError(Exception):
    """The clerk is killed in the middle of a transaction."""


class Accounting(RuleBasedStateMachine):
    """A team, its requests, and the stream of records about them, beside a count of its own."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.team_id = next(teams)
        self.stream: list[Record] = []
        self.heard: dict[str, list[Record]] = {}
        self.lanes: dict[str, Lane] = {}
        self.costs: dict[str, int] = {}
        self.refunds: dict[str, int] = {}
        self.by_hand: dict[str, int] = {}

    # What happens.

    @initialize(lives=st.lists(lives, min_size=1, max_size=3))
    def begin(self, lives: list[Life]) -> None:
        for life in lives:
            self._serve(life)

    @rule(target=requests, life=lives)
    def serve(self, life: Life) -> str:
        return self._serve(life)

    def _serve(self, life: Life) -> str:
        """Serve a request; some of its records are lost with the processes that had them."""
        request_id = new_id()
        self.lanes[request_id] = life.lane
        who: dict[str, Any] = {"team_id": self.team_id, "lane": life.lane}
        said: list[Record] = [admitted(request_id, **who)]
        for number, (ending, usage) in enumerate(life.attempts):
            fields: dict[str, Any] = {"attempt": number, "ending": ending, "usage": usage}
            said.append(completed(request_id, engine_id=new_id(), **who, **fields))
        last = said[-1]
        if not isinstance(last, Completed):
            said.append(unserved(request_id, ending=life.end))
        else:
            end: dict[str, Any] = {"ending": life.end}
            if last.ending is Ending.FINISHED:
                end = {"ending": Ending.FINISHED, "usage": last.usage}
            end |= {"engine_id": last.engine_id, "attempts": len(life.attempts)}
            said.append(closed(request_id, **end))
        self.stream += [record for number, record in enumerate(said) if number not in life.killed]
        return request_id

    @precondition(lambda self: self.stream)
    @rule(
        data=st.data(),
        share=st.sampled_from([1.0, 0.7, 0.3]),
        killed=st.sampled_from(["no", "no", "before the commit", "after it"]),
    )
    def record(self, data: st.DataObject, share: float, killed: str) -> None:
        """Record some of what is in the stream, in any order; what is killed has to do it again."""
        order = data.draw(st.permutations(self.stream), label="order")
        batch = order[: math.ceil(len(order) * share)]
        try:
            with transaction.atomic():
                write(batch, NOW)
                if killed == "before the commit":
                    raise KilledError
        except KilledError:
            return
        self._hear(batch)
        if killed == "no":
            self.stream = [record for record in self.stream if record not in batch]

    def _hear(self, batch: list[Record]) -> None:
        for record in batch:
            heard = self.heard.setdefault(record.request_id, [])
            if record not in heard:
                heard.append(record)
        for request_id in {record.request_id for record in batch}:
            if Said(self.heard[request_id]).complete:
                self._bill(request_id)

    @rule()
    def sweep(self) -> None:
        """Settle whatever is not settled yet."""
        with transaction.atomic():
            settle_overdue(FAR, NOW)
        for request_id in self.heard:
            self._bill(request_id)

    def _bill(self, request_id: str) -> None:
        bill = Said(self.heard[request_id]).bill
        if bill is not None and request_id not in self.costs:
            self.costs[request_id] = cost(bill, self.lanes[request_id])

    @rule(nonce=st.sampled_from("abc"), amount=st.sampled_from([1, 10_000, 25_000_000]))
    def top_up(self, nonce: str, amount: int) -> None:
        if self.by_hand.get(nonce, amount) == amount:
            entry = ledger.top_up(self.team_id, amount, nonce=nonce)
            assert entry.amount_micros == amount
            self.by_hand[nonce] = amount
        else:
            with pytest.raises(TandemError):
                ledger.top_up(self.team_id, amount, nonce=nonce)

    @rule(amount=st.integers(-10_000, 10_000).filter(bool))
    def adjust(self, amount: int) -> None:
        ledger.adjust(self.team_id, amount)
        self.by_hand[f"adjustment {len(self.by_hand)}"] = amount

    @rule(request_id=requests)
    def refund(self, request_id: str) -> None:
        if self.costs.get(request_id, 0):
            ledger.refund(request_id)
            self.refunds[request_id] = self.costs[request_id]
        else:
            with pytest.raises(TandemError):
                ledger.refund(request_id)

    # What must hold.

    @invariant()
    def the_balance_is_what_was_counted(self) -> None:
        balance = sum(self.by_hand.values()) + sum(self.refunds.values()) - sum(self.costs.values())
        state = ledger.read_states([self.team_id], NOW)[self.team_id]
        assert state.balance_micros == balance
        assert state.version == len(self.by_hand) + len(self.refunds) + len(self.costs)
        assert state.day_spent_micros == sum(self.costs.values())

    def teardown(self) -> None:
        with transaction.atomic():
            write(self.stream, NOW)
        self._hear(self.stream)
        self.sweep()
        self.the_balance_is_what_was_counted()
        entries = LedgerEntry.objects.filter(account_id=self.team_id, kind="usage")
        found = [(str(entry.request_id), -entry.amount_micros) for entry in entries]
        assert sorted(found) == sorted(self.costs.items())
        rows = RequestRecord.objects.filter(team_id=self.team_id, cost_micros__isnull=False)
        assert {str(row.id): row.cost_micros for row in rows} == self.costs
        days = UsageDay.objects.filter(team_id=self.team_id)
        assert sum(day.requests for day in days) == len(self.costs)
        assert list(Recount(self.team_id).findings()) == []


def cost(bill: Bill, lane: Lane) -> int:
    """Return what a bill comes to by the price below."""
    if not bill.paid:
        return 0
    usage = bill.usage
    plain = usage.prompt_tokens - usage.cached_tokens - usage.cache_written_tokens
    micros = 3 * plain + usage.cached_tokens + 4 * usage.cache_written_tokens
    thousandths = (micros + 15 * usage.output_tokens) * LANES[lane]
    return thousandths // 1000 + (thousandths % 1000 >= 500)


def test_the_ledger_is_what_an_independent_count_makes() -> None:
    Price.objects.create(
        model="m",
        effective_from=NOW - timedelta(days=1),
        input_micros_per_mtok=3_000_000,
        cached_input_micros_per_mtok=1_000_000,
        cache_write_micros_per_mtok=4_000_000,
        output_micros_per_mtok=15_000_000,
        batch_permille=LANES[Lane.BATCH],
    )
    run_state_machine_as_test(
        Accounting, settings=settings(max_examples=50, stateful_step_count=20, deadline=None)
    )
