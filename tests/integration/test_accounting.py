"""Whatever happens to requests and processes, the ledger is what an independent count makes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from inference.errors import TandemError
from inference.events import Usage
from inference.request import Lane
from inference.transport.records import Closed, Completed, Ending, Record
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
tokens = st.integers(0, 1000)
kills = st.sampled_from([False, False, False, True])
# One moment for all of it: no run is cut in two by midnight.
NOW = timezone.now()


class KilledError(Exception):
    """The clerk is killed in the middle of a transaction."""


class Request:
    """What a client, a gateway and engines really do with one request."""

    def __init__(self, team_id: int, lane: Lane) -> None:
        self.id = new_id()
        self.who: dict[str, Any] = {"team_id": team_id, "lane": lane}
        self.attempts: list[Completed] = []
        self.ended: Closed | None = None


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

    @rule(target=requests, lane=st.sampled_from(list(LANES)), lost=kills)
    def admit(self, lane: Lane, lost: bool) -> Request:
        request = Request(self.team_id, lane)
        self.lanes[request.id] = lane
        self._say(admitted(request.id, **request.who), lost)
        return request

    @rule(
        request=requests,
        ending=st.sampled_from(Ending),
        parts=st.tuples(tokens, tokens, tokens, tokens),
        lost=kills,
    )
    def engine_ends(
        self, request: Request, ending: Ending, parts: tuple[int, int, int, int], lost: bool
    ) -> None:
        if request.ended or len(request.attempts) == 3:
            return
        plain, cached, written, output = parts
        usage = Usage(
            prompt_tokens=plain + cached + written,
            cached_tokens=cached,
            cache_written_tokens=written,
            output_tokens=output,
        )
        fields = {"attempt": len(request.attempts), "ending": ending, "usage": usage}
        record = completed(request.id, engine_id=new_id(), **request.who, **fields)
        request.attempts.append(record)
        self._say(record, lost)

    @rule(
        request=requests,
        ending=st.sampled_from([Ending.CANCELLED, Ending.TIMEOUT, Ending.FAILED]),
        lost=kills,
    )
    def gateway_ends(self, request: Request, ending: Ending, lost: bool) -> None:
        if request.ended:
            return
        last = request.attempts[-1] if request.attempts else None
        if last is None:
            request.ended = unserved(request.id, ending=ending)
        else:
            finished = last.ending is Ending.FINISHED
            said: dict[str, Any] = {"usage": last.usage} if finished else {}
            request.ended = closed(
                request.id,
                engine_id=last.engine_id,
                attempts=len(request.attempts),
                ending=Ending.FINISHED if finished else ending,
                **said,
            )
        self._say(request.ended, lost)

    def _say(self, record: Record, lost: bool) -> None:
        """Write a record, unless whoever has it is killed before it can."""
        if not lost:
            self.stream.append(record)

    @precondition(lambda self: self.stream)
    @rule(data=st.data(), killed=st.sampled_from(["no", "before the commit", "after it"]))
    def record(self, data: st.DataObject, killed: str) -> None:
        indices = data.draw(
            st.lists(st.integers(0, len(self.stream) - 1), min_size=1, max_size=8), label="batch"
        )
        batch = [self.stream[index] for index in indices]
        try:
            with transaction.atomic():
                write(batch, NOW)
                if killed == "before the commit":
                    raise KilledError
        except KilledError:
            return
        for record in batch:
            heard = self.heard.setdefault(record.request_id, [])
            if record not in heard:
                heard.append(record)
        for request_id in {record.request_id for record in batch}:
            if Said(self.heard[request_id]).complete:
                self._bill(request_id)
        if killed == "no":
            self.stream = [each for n, each in enumerate(self.stream) if n not in indices]

    @rule()
    def sweep(self) -> None:
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

    @rule(request=requests)
    def refund(self, request: Request) -> None:
        if self.costs.get(request.id, 0):
            ledger.refund(request.id)
            self.refunds[request.id] = self.costs[request.id]
        else:
            with pytest.raises(TandemError):
                ledger.refund(request.id)

    # What must hold.

    @invariant()
    def the_balance_is_what_was_counted(self) -> None:
        balance = sum(self.by_hand.values()) + sum(self.refunds.values()) - sum(self.costs.values())
        state = ledger.read_states([self.team_id], NOW)[self.team_id]
        assert state.balance_micros == balance
        assert state.version == len(self.by_hand) + len(self.refunds) + len(self.costs)
        assert state.day_spent_micros == sum(self.costs.values())

    def teardown(self) -> None:
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
        Accounting, settings=settings(max_examples=30, stateful_step_count=40, deadline=None)
    )
