"""Work under everything that can happen to it: each piece ends once, and the sums agree.

One engine after another is told what to do by chance: take, end, fail, give back, die, be late.
Rows are cancelled and expire meanwhile. Then what is kept must agree with what was told, and the
ledger with its own entries, counted anew.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pytest_django import Settings

from inference.engine.work import WorkItem, WorkResult
from inference.transport.records import Ending
from jobs import batches
from jobs.models import (
    Account,
    Batch,
    KeyUse,
    LedgerEntry,
    Price,
    RequestRecord,
    StoredResponse,
    UsageDay,
    Work,
    Worker,
)
from jobs.recount import Recount
from jobs.work import leases, pending
from jobs.work.cancel import cancel
from jobs.work.enqueue import insert
from jobs.work.policy import MAX_DEATHS
from jobs.work.source import DatabaseSource
from tests.work import finished, new_batch, new_source, new_work, result, rows_of

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = 8
# 80 tokens of input, 20 of them from the cache, and 30 of output, at half of the price.
COST = (100 + 2 * 30) // 2


@pytest.fixture(autouse=True)
def _ready(settings: Settings) -> None:
    settings.WORK_TERMS = "tests.work.no_terms"


def set_price() -> None:
    Price.objects.create(
        model="m",
        effective_from=timezone.now() - timedelta(days=1),
        input_micros_per_mtok=1_000_000,
        cached_input_micros_per_mtok=1_000_000,
        cache_write_micros_per_mtok=1_000_000,
        output_micros_per_mtok=2_000_000,
    )


class Life(RuleBasedStateMachine):
    """Two engines, one batch, and what is known of each row from outside."""

    def __init__(self) -> None:
        super().__init__()
        clear()
        set_price()
        self.batch = new_batch()
        self.engines = [new_source(), new_source()]
        self.has: list[dict[str, WorkItem]] = [{}, {}]
        # What dead engines still believe that they have.
        self.ghosts: list[tuple[DatabaseSource, WorkItem]] = []
        self.deaths: Counter[str] = Counter()
        self.preemptions: Counter[str] = Counter()
        self.ended: dict[str, str] = {}
        self.paid: set[str] = set()

    @initialize()
    def begin(self) -> None:
        batches.begin(self.batch.pk, rows_of(self.batch, ROWS))

    @rule(engine=st.integers(0, 1), limit=st.integers(1, 4))
    def take(self, engine: int, limit: int) -> None:
        Work.objects.update(not_before=None)
        for item in self.engines[engine].claim(limit):
            assert item.request.id not in self.ended
            assert all(item.request.id not in has for has in self.has)
            assert item.alone == (self.deaths[item.request.id] >= MAX_DEATHS - 1)
            assert item.preemptions == self.preemptions[item.request.id]
            self.has[engine][item.request.id] = item

    @rule(
        engine=st.integers(0, 1),
        how=st.sampled_from(["finish", "fail", "late", "died"]),
        count=st.integers(1, 3),
    )
    def end(self, engine: int, how: str, count: int) -> None:
        items = list(self.has[engine].values())[:count]
        results = [result_of(item, how) for item in items]
        self.engines[engine].finish(results)
        # The answer of the database may be lost, and the results told again.
        self.engines[engine].finish(results)
        for item in items:
            del self.has[engine][item.request.id]
            if how == "died":
                self._died(item.request.id)
            else:
                self.ended[item.request.id] = how
        if how == "finish":
            self.paid |= {item.request.id for item in items}

    @rule(engine=st.integers(0, 1), count=st.integers(1, 3), preempted=st.booleans())
    def give_back(self, engine: int, count: int, preempted: bool) -> None:
        ids = list(self.has[engine])[:count]
        self.engines[engine].give_back(ids, preempted=preempted)
        for request_id in ids:
            del self.has[engine][request_id]
            self.preemptions[request_id] += int(preempted)

    @rule(engine=st.integers(0, 1))
    def die(self, engine: int) -> None:
        source = self.engines[engine]
        past = timezone.now() - timedelta(seconds=1)
        Worker.objects.filter(pk=source._engine.id).update(expires_at=past)
        leases.reap(timezone.now())
        for item in self.has[engine].values():
            self._died(item.request.id)
            self.ghosts.append((source, item))
        self.engines[engine], self.has[engine] = new_source(), {}

    @precondition(lambda self: self.ghosts)
    @rule()
    def haunt(self) -> None:
        for source, item in self.ghosts:
            source.finish([finished(item, "of a dead engine")])

    @rule(engine=st.integers(0, 1))
    def close(self, engine: int) -> None:
        self.engines[engine].close()
        self.engines[engine], self.has[engine] = new_source(), {}

    @rule(engine=st.integers(0, 1))
    def renew(self, engine: int) -> None:
        assert self.engines[engine].renew(list(self.has[engine])) == set()

    @rule(line=st.integers(1, ROWS))
    def cancel_row(self, line: int) -> None:
        row = Work.objects.get(batch=self.batch, line=line)
        if row.state == Work.State.PENDING:
            assert cancel(str(row.pk))
            self.ended[str(row.pk)] = "cancelled"

    @rule(chance=st.integers(0, 9))
    def cancel_all(self, chance: int) -> None:
        if chance == 0:
            self._all_that_waits("cancelled")
            batches.cancel(self.batch.pk)

    @rule(chance=st.integers(0, 9))
    def expire(self, chance: int) -> None:
        if chance == 0:
            self._all_that_waits("late")
            pending.expire(self.batch.expires_at + timedelta(seconds=1))

    def _all_that_waits(self, how: str) -> None:
        for row in Work.objects.filter(state=Work.State.PENDING):
            self.ended[str(row.pk)] = how

    def _died(self, request_id: str) -> None:
        self.deaths[request_id] += 1
        if self.deaths[request_id] == MAX_DEATHS:
            self.ended[request_id] = "fail"

    @invariant()
    def everything_agrees(self) -> None:
        outcomes = {"finish": "completed", "fail": "failed", "late": "expired"}
        expected = {each: outcomes.get(how, how) for each, how in self.ended.items()}
        rows = Work.objects.filter(batch=self.batch)
        assert {str(row.pk): row.outcome for row in rows if row.outcome} == expected
        running = {each for has in self.has for each in has}
        assert {str(row.pk) for row in rows if row.state == Work.State.RUNNING} == running
        batch = Batch.objects.get(pk=self.batch.pk)
        counted = Counter(expected.values())
        names = ("completed", "failed", "cancelled", "expired")
        assert {name: getattr(batch, name) for name in names} == {
            name: counted[name] for name in names
        }
        assert (batch.status == Batch.Status.FINALIZING) == (len(expected) == ROWS == batch.total)
        assert batch.cost_micros == COST * len(self.paid)
        billed = LedgerEntry.objects.exclude(amount_micros=0)
        assert {str(entry.request_id) for entry in billed} == self.paid
        assert LedgerEntry.objects.values("request_id").distinct().count() == (
            LedgerEntry.objects.count()
        )

    def teardown(self) -> None:
        assert list(Recount().findings()) == []
        assert not RequestRecord.objects.filter(settled_at__isnull=True).exists()


def clear() -> None:
    """Empty the tables of the run before, as the ledger's guards do not let anybody else."""
    models = (
        *(Account, Batch, KeyUse, LedgerEntry, Price, RequestRecord, StoredResponse),
        *(UsageDay, Work, Worker),
    )
    tables = ", ".join(model._meta.db_table for model in models)
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {tables} CASCADE")


def result_of(item: WorkItem, how: str) -> WorkResult:
    match how:
        case "finish":
            return finished(item)
        case "fail":
            return result(item, ending=Ending.FAILED, detail="prompt_too_long")
        case "late":
            return result(item, ending=Ending.TIMEOUT)
    return result(item, ending=Ending.ENGINE_LOST)


def test_each_row_ends_once_whatever_happens() -> None:
    run_state_machine_as_test(
        Life, settings=hypothesis_settings(max_examples=15, stateful_step_count=30)
    )


def in_threads(*calls: Callable[[], None]) -> list[BaseException]:
    """Make calls at the same time; return what they raised."""
    errors: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a test wants to see whatever it is
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_engines_at_the_same_time_neither_share_a_row_nor_wait_in_a_ring() -> None:
    set_price()
    made = [new_batch(team_id=team) for team in (1, 2, 3)]
    for batch in made:
        batches.begin(batch.pk, rows_of(batch, 150))

    def drain() -> None:
        source = new_source()
        while items := source.claim(16):
            # One goes back, unless it is all that there is.
            back, done = (items[:1], items[1:]) if len(items) > 1 else ([], items)
            source.give_back([item.request.id for item in back])
            source.finish([finished(item) for item in done])

    def meddle() -> None:
        for line in range(1, 150, 10):
            cancel(str(Work.objects.get(batch=made[0], line=line).pk))
            pending.rise(timezone.now())
            leases.reap(timezone.now())
        batches.cancel(made[1].pk)
        pending.expire(timezone.now())

    assert in_threads(drain, drain, drain, meddle) == []
    drain()
    for batch in made:
        batch.refresh_from_db()
        assert batch.status == Batch.Status.FINALIZING
        assert batch.ended_rows == batch.total == 150
        rows = Counter(row.outcome for row in Work.objects.filter(batch=batch))
        assert rows["completed"] == batch.completed
        assert batch.cost_micros == COST * batch.completed
    completed = sum(batch.completed for batch in made)
    assert LedgerEntry.objects.exclude(amount_micros=0).count() == completed
    assert list(Recount().findings()) == []


def test_while_there_is_work_no_engine_is_told_that_there_is_none() -> None:
    insert(new_work(team_id=team) for team in (1, 2, 3) for _ in range(200))
    taken: list[str] = []
    together = threading.Barrier(2)

    def take() -> None:
        source = new_source()
        # Both at once each time, 60 each: that is all there is in five rounds.
        for _ in range(5):
            together.wait()
            items = source.claim(60)
            assert len(items) == 60
            taken.extend(item.request.id for item in items)

    assert in_threads(take, take) == []
    assert len(set(taken)) == len(taken) == 600
