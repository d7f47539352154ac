"""Work drained from a source in memory into the scripted engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from django.db import OperationalError

from inference.backends.port import Tally
from inference.backends.scripted import ScriptedBackend
from inference.engine import drain as drain_module
from inference.engine import outcomes as outcomes_module
from inference.engine.drain import wake
from inference.engine.work import WorkItem
from inference.errors import ErrorCode
from inference.events import Event, Started
from inference.request import GenerationRequest, Lane, TextPart
from inference.transport.records import Ending
from tests.conftest import Eventually
from tests.work_source import FakeSource, make_item

ENDLESS = 'script: {"tokens": 100000, "token_delay_s": 0.02}'
SAY_AB = 'script: {"text": "a b"}'


async def test_all_work_is_done_once(start: Any, eventually: Eventually) -> None:
    items = [make_item(f'script: {{"text": "{number}"}}') for number in range(200)]
    source = FakeSource(*items)
    async with start(source):
        await eventually(lambda: len(source.results) == 200)
    said = {
        result.item.request.id: result.answer.parts for result in source.results if result.answer
    }
    assert said == {item.request.id: (TextPart(str(number)),) for number, item in enumerate(items)}
    assert source.given_back == []
    assert source.closed


async def test_what_it_came_to_is_told_whole(start: Any, eventually: Eventually) -> None:
    source = FakeSource(make_item('script: {"text": "a b", "cached_tokens": 2}'))
    async with start(source):
        await eventually(lambda: bool(source.results))
    (result,) = source.results
    assert (result.ending, result.detail, result.message) == (Ending.FINISHED, "end", "")
    assert (result.usage.output_tokens, result.usage.cached_tokens) == (2, 2)
    assert result.first_token_at_s is not None
    assert result.taken_at_s <= result.first_token_at_s <= result.ended_at_s
    assert result.events == ()


async def test_it_leaves_the_places_of_realtime_free(start: Any, eventually: Eventually) -> None:
    source = FakeSource(*(make_item(ENDLESS) for _ in range(20)))
    async with start(source, capacity=8) as engine:
        await eventually(lambda: engine.drain.in_flight == 7)
        assert engine.admission.room(Lane.REALTIME) == 1
    assert len(source.given_back) == 7
    assert engine.admission.in_use == 0


async def test_an_idle_engine_asks_for_no_more_than_one(start: Any, eventually: Eventually) -> None:
    source = FakeSource()
    async with start(source):
        await eventually(lambda: len(source.limits) >= 3)
    assert set(source.limits) == {1}


async def test_it_is_woken_for_new_work(
    start: Any, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_module, "POLL_S", 3600)
    source = FakeSource()
    async with start(source):
        await eventually(lambda: len(source.limits) == 1)
        item = make_item()
        source.add(item)
        await asyncio.to_thread(wake, "another-model")
        await asyncio.to_thread(wake, "model-under-test")
        await eventually(lambda: source.ending_of(item) is Ending.FINISHED)
    wake("model-under-test")


async def test_work_that_cannot_be_served_ends_with_its_reason(
    start: Any, eventually: Eventually
) -> None:
    item = make_item("x" * 1000)
    source = FakeSource(item)
    async with start(source, context_tokens=10):
        await eventually(lambda: source.ending_of(item) is Ending.FAILED)
    (result,) = source.results
    assert (result.detail, result.answer) == (ErrorCode.PROMPT_TOO_LONG, None)
    assert result.message


async def test_an_engine_that_fails_at_one_thing_says_so(
    start: Any, eventually: Eventually
) -> None:
    item = make_item('script: {"fail_at": 1}')
    source = FakeSource(item)
    async with start(source):
        await eventually(lambda: source.ending_of(item) is Ending.FAILED)
    assert source.results[0].detail == ErrorCode.ENGINE_FAILED


class DeadBackend(ScriptedBackend):
    """Says that its process has died."""

    def failure(self) -> str | None:
        return "the engine's process died"


async def test_what_an_engine_did_not_survive_was_lost_with_it(
    start: Any, eventually: Eventually
) -> None:
    item = make_item('script: {"fail_at": 1}')
    source = FakeSource(item)
    async with start(source, DeadBackend):
        await eventually(lambda: source.ending_of(item) is Ending.ENGINE_LOST)


class BrokenBackend(ScriptedBackend):
    """Breaks the port's promises: lets an error out, or ends without a final event."""

    async def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        yield Started(prompt_tokens=1)
        if "error" in str(request.messages):
            raise ZeroDivisionError


@pytest.mark.parametrize("how", ["error", "silence"])
async def test_a_bug_in_a_backend_ends_its_work_and_nothing_else(
    start: Any, eventually: Eventually, how: str
) -> None:
    item = make_item(how)
    source = FakeSource(item)
    async with start(source, BrokenBackend) as engine:
        await eventually(lambda: source.ending_of(item) is Ending.FAILED)
        assert not engine.task.done()
    assert source.results[0].detail == ErrorCode.INTERNAL


async def test_cancelled_work_is_broken_off_and_what_it_used_is_told(
    start: Any, eventually: Eventually
) -> None:
    item, other = make_item(ENDLESS), make_item(ENDLESS)
    source = FakeSource(item, other)
    async with start(source) as engine:
        await eventually(lambda: engine.drain.in_flight == 2)
        source.broken_off = {item.request.id}
        await eventually(lambda: source.ending_of(item) is Ending.CANCELLED)
        assert engine.drain.in_flight == 1
    assert source.results[0].usage.prompt_tokens > 0
    assert {other.request.id} in source.renewed


async def test_work_past_its_deadline_is_broken_off(start: Any, eventually: Eventually) -> None:
    item = make_item(ENDLESS, deadline_s=time.time() + 0.05)
    source = FakeSource(item)
    async with start(source):
        await eventually(lambda: source.ending_of(item) is Ending.TIMEOUT)


async def test_results_are_kept_together(start: Any, eventually: Eventually) -> None:
    source = FakeSource(*(make_item() for _ in range(300)))
    async with start(source, capacity=64):
        await eventually(lambda: len(source.results) == 300)
    assert max(source.batches) <= 64
    assert len(source.batches) < 30


async def test_results_wait_for_a_database_that_is_away(start: Any, eventually: Eventually) -> None:
    items = [make_item('script: {"tokens": 5, "token_delay_s": 0.02}') for _ in range(4)]
    source = FakeSource(*items)
    async with start(source) as engine:
        await eventually(lambda: engine.drain.in_flight == 4)
        source.away = True
        await eventually(lambda: engine.drain.in_flight == 0)
        assert source.results == []
        opened = source.opened
        source.away = False
        await eventually(lambda: len(source.results) == 4)
        # The lease may have been lost meanwhile.
        assert source.opened > opened
    assert {source.ending_of(item) for item in items} == {Ending.FINISHED}


async def test_a_database_that_is_away_from_the_beginning_is_waited_for(
    start: Any, eventually: Eventually
) -> None:
    item = make_item()
    source = FakeSource(item)
    source.away = True
    async with start(source):
        await eventually(lambda: len(source.threads) == 1)
        source.away = False
        await eventually(lambda: source.ending_of(item) is Ending.FINISHED)
    assert len(source.threads) == 1


async def test_what_was_kept_although_the_answer_was_lost_is_told_again_in_vain(
    start: Any, eventually: Eventually
) -> None:
    item = make_item()
    source = FakeSource(item)
    failed: list[WorkItem] = []

    def lose_the_answer() -> None:
        if not failed:
            failed.append(source.taken.pop(item.request.id))
            raise ConnectionError

    source.on_finish = lose_the_answer
    async with start(source) as engine:
        await eventually(lambda: source.batches == [1])
        assert source.results == []
        assert engine.drain.in_flight == 0


async def test_no_more_is_taken_while_too_many_results_wait(
    start: Any, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes_module, "_MAX_WAITING", 10)
    source = FakeSource(*(make_item() for _ in range(100)))
    refusing = True

    def refuse() -> None:
        if refusing:
            raise ConnectionError

    source.on_finish = refuse
    async with start(source):
        await eventually(lambda: len(source.taken) >= 10)
        claims = len(source.limits)
        renewals = len(source.renewed)
        await eventually(lambda: len(source.renewed) > renewals + 5)
        assert len(source.limits) <= claims + 1
        assert len(source.taken) < 30
        refusing = False
        await eventually(lambda: len(source.results) == 100)


async def test_work_to_be_run_alone_has_no_other_beside_it(
    start: Any, eventually: Eventually
) -> None:
    before = [make_item('script: {"tokens": 10, "token_delay_s": 0.02}') for _ in range(2)]
    alone = [
        make_item('script: {"tokens": 5, "token_delay_s": 0.02}', alone=True) for _ in range(2)
    ]
    after = [make_item() for _ in range(5)]
    source = FakeSource(before[0], before[1], *alone, *after)
    seen: set[frozenset[str]] = set()
    async with start(source) as engine:
        while len(source.results) < 9:
            seen.add(frozenset(engine.drain._running))
            await asyncio.sleep(0)
    for item in alone:
        assert {ids for ids in seen if item.request.id in ids} == {frozenset({item.request.id})}
    assert any({item.request.id for item in before} <= ids for ids in seen)


async def test_work_to_be_run_alone_is_not_put_off_by_what_comes_meanwhile(
    start: Any, eventually: Eventually
) -> None:
    slow = 'script: {"tokens": 5, "token_delay_s": 0.02}'
    alone = [make_item(slow, alone=True) for _ in range(3)]
    source = FakeSource(make_item(slow), *alone)
    # There is room to take all of them at once.
    async with start(source, capacity=64) as engine:
        # Each of them is more urgent than those, and there is always another.
        while not all(source.ending_of(item) for item in alone):
            if not source.pending or source.pending[0].alone:
                source.pending.insert(0, make_item(slow))
                engine.drain.wake()
            await asyncio.sleep(0)
    ended = [result.item.request.id for result in source.results]
    places = [ended.index(item.request.id) for item in alone]
    assert max(places) - min(places) == 2


async def test_nor_by_a_database_that_was_away_in_between(
    start: Any, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_module, "POLL_S", 0.05)
    slow = 'script: {"tokens": 5, "token_delay_s": 0.02}'
    alone = make_item(slow, alone=True)
    source = FakeSource(make_item(slow), alone)
    asked: list[list[str]] = []
    claim = source.claim

    def upset(limit: int, first: Any = ()) -> list[WorkItem]:
        asked.append(list(first))
        if first and len(asked) == asked.index(list(first)) + 1:
            raise OperationalError("the database is away")
        return claim(limit, first)

    source.claim = upset  # type: ignore[method-assign]
    async with start(source):
        await eventually(lambda: source.ending_of(alone) is not None)
    assert asked.count([alone.request.id]) == 2


async def test_nor_while_they_are_still_being_given_back(
    start: Any, eventually: Eventually
) -> None:
    slow = 'script: {"tokens": 5, "token_delay_s": 0.02}'
    alone = [make_item(slow, alone=True) for _ in range(3)]
    source = FakeSource(make_item(slow), *alone)
    give_back = source.give_back
    asked = 0

    def late(request_ids: Any, *, preempted: bool = False) -> None:
        # The engine asks for them before it is heard that they wait again.
        if not asked:
            raise OperationalError("the database is away")
        give_back(request_ids, preempted=preempted)

    claim = source.claim

    def counted(limit: int, first: Any = ()) -> list[WorkItem]:
        nonlocal asked
        asked += bool(first)
        return claim(limit, first)

    source.give_back = late  # type: ignore[method-assign]
    source.claim = counted  # type: ignore[method-assign]
    async with start(source, capacity=64):
        await eventually(lambda: asked > 0)
        source.add(*[make_item(slow) for _ in range(3)])
        await eventually(lambda: all(source.ending_of(item) for item in alone))
    # Once in vain, and then for each that is left until there is none.
    assert asked >= 4


async def test_told_to_stop_it_gives_back_what_runs(start: Any, eventually: Eventually) -> None:
    item = make_item(ENDLESS)
    source = FakeSource(item)
    async with start(source) as engine:
        await eventually(lambda: engine.drain.in_flight == 1)
        await engine.stop()
    assert source.pending == [item]
    assert source.results == []
    assert source.closed


async def test_a_dying_engine_says_what_it_took_with_it(start: Any, eventually: Eventually) -> None:
    item = make_item(ENDLESS)
    source = FakeSource(item)
    async with start(source) as engine:
        await eventually(lambda: engine.drain.in_flight == 1)
        await engine.stop(engine_died=True)
    assert source.ending_of(item) is Ending.ENGINE_LOST
    assert source.given_back == []


async def test_it_stops_although_the_database_is_away(start: Any, eventually: Eventually) -> None:
    source = FakeSource(make_item(ENDLESS))
    async with start(source) as engine:
        await eventually(lambda: engine.drain.in_flight == 1)
        source.away = True
    assert not source.closed


async def test_work_that_comes_back_while_it_still_runs_here_begins_anew(
    start: Any, eventually: Eventually
) -> None:
    item = make_item('script: {"tokens": 3, "token_delay_s": 0.1}')
    source = FakeSource(item)
    async with start(source) as engine:
        await eventually(lambda: engine.drain.in_flight == 1)
        # The lease was lost, and with it the work.
        source.taken.clear()
        source.add(item)
        await eventually(lambda: source.ending_of(item) is Ending.FINISHED)
    assert source.given_back == [item.request.id]
