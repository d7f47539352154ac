"""Work that gives its place to realtime, and what runs whatever realtime does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, ClassVar

import msgspec
import pytest

from inference.backends.port import Tally
from inference.backends.scripted import ScriptedBackend
from inference.engine.work import WorkItem
from inference.events import Event, ServerToolCall
from inference.request import GenerationRequest, Lane, TextPart
from inference.transport.records import Ending
from tests.conftest import Eventually
from tests.unit.inference.engine.conftest import Engine
from tests.work_source import FakeSource, make_item

SLOW = 'script: {"text": "a b c d e f g h i j", "token_delay_s": 0.02}'
ENDLESS = 'script: {"tokens": 100000, "token_delay_s": 0.02}'
SAY_AB = 'script: {"text": "a b"}'


def in_lane(lane: Lane, text: str = ENDLESS, **fields: Any) -> WorkItem:
    item = make_item(text, **fields)
    request = msgspec.structs.replace(item.request, lane=lane)
    return msgspec.structs.replace(item, request=request)


async def is_under_way(engine: Engine, eventually: Eventually, item: WorkItem) -> None:
    """Wait until an item has put out something."""
    running = engine.drain._running
    await eventually(
        lambda: (
            (found := running.get(item.request.id)) is not None and found.tally.output_tokens > 0
        )
    )


async def test_the_youngest_of_the_least_urgent_lane_is_preempted(
    start: Any, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, young = in_lane(Lane.BATCH), in_lane(Lane.BATCH)
    background = in_lane(Lane.BACKGROUND)
    source = FakeSource()
    async with start(source) as engine:
        for number, item in enumerate((old, young, background), start=1):
            source.add(item)
            await eventually(lambda: engine.drain.in_flight == number)  # noqa: B023
        # It goes back into a source that has nothing else to do.
        monkeypatch.setattr(source, "claim", lambda _limit: [])
        for number, item in enumerate((young, old, background), start=1):
            assert engine.drain.preempt()
            await eventually(lambda: len(source.given_back) == number)  # noqa: B023
            assert source.given_back[-1] == item.request.id
        assert not engine.drain.preempt()
        assert engine.drain.preemptions == 3


async def test_preempted_work_runs_again_and_ends_once(start: Any, eventually: Eventually) -> None:
    item = in_lane(Lane.BATCH, SLOW)
    source = FakeSource(item)
    async with start(source) as engine:
        await is_under_way(engine, eventually, item)
        assert engine.drain.preempt()
        await eventually(lambda: source.ending_of(item) is Ending.FINISHED)
        assert engine.drain.preemptions == 1
        # Its prompt, and a token at least.
        assert engine.drain.wasted_tokens > source.results[0].usage.prompt_tokens
    assert source.given_back == [item.request.id]
    (result,) = source.results
    assert result.item.preemptions == 1
    assert result.answer is not None
    assert result.answer.parts == (TextPart("a b c d e f g h i j"),)


async def test_what_callers_follow_is_preempted_only_before_it_says_anything(
    start: Any, eventually: Eventually
) -> None:
    quiet = 'script: {"text": "a b", "first_token_delay_s": 1000}'
    silent, told = in_lane(Lane.BATCH, quiet, logged=True), in_lane(Lane.BATCH, logged=True)
    source = FakeSource(silent, told)
    async with start(source) as engine:
        await eventually(lambda: engine.drain.in_flight == 2)
        await is_under_way(engine, eventually, told)
        await eventually(lambda: engine.drain._running[told.request.id].has_said)
        assert engine.drain.preempt()
        await eventually(lambda: source.given_back == [silent.request.id])


class _Calling(ScriptedBackend):
    """Runs a tool before it answers."""

    async def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        yield ServerToolCall(id="1", server="clock", name="now", arguments="{}")
        async with aclosing(super().generate(request, tally)) as events:
            async for event in events:
                yield event


async def test_work_that_has_run_a_tool_does_not_run_it_again(
    start: Any, eventually: Eventually
) -> None:
    item = in_lane(Lane.BATCH)
    async with start(FakeSource(item), backend=_Calling) as engine:
        await is_under_way(engine, eventually, item)
        assert not engine.drain.preempt()


async def test_work_that_was_preempted_three_times_is_left_to_run(
    start: Any, eventually: Eventually
) -> None:
    item = in_lane(Lane.BATCH)
    source = FakeSource(item)
    async with start(source) as engine:
        for _ in range(3):
            await is_under_way(engine, eventually, item)
            assert engine.drain.preempt()
            await eventually(lambda: engine.drain.in_flight == 0)
        await is_under_way(engine, eventually, item)
        assert not engine.drain.preempt()
        assert engine.drain.preemptions == 3
        assert engine.drain.in_flight == 1


@pytest.mark.parametrize("what", ["urgent", "alone", "late"])
async def test_work_that_must_not_wait_is_not_preempted(
    start: Any, eventually: Eventually, what: str
) -> None:
    fields = {"deadline_s": time.time() + 300} if what == "late" else {what: True}
    item = in_lane(Lane.BATCH, **fields)
    async with start(FakeSource(item)) as engine:
        await is_under_way(engine, eventually, item)
        assert not engine.drain.preempt()
        assert engine.drain.in_flight == 1


class TidyBackend(ScriptedBackend):
    """Has something to do after its last word."""

    has_ended = False
    may_go: asyncio.Event

    async def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        async with aclosing(super().generate(request, tally)) as events:
            async for event in events:
                yield event
        type(self).has_ended = True
        await type(self).may_go.wait()


async def test_work_that_has_had_its_last_word_is_not_preempted(
    start: Any, eventually: Eventually
) -> None:
    TidyBackend.may_go = asyncio.Event()
    item = in_lane(Lane.BATCH, SAY_AB)
    source = FakeSource(item)
    async with start(source, TidyBackend) as engine:
        await eventually(lambda: TidyBackend.has_ended)
        assert not engine.drain.preempt()
        TidyBackend.may_go.set()
        await eventually(lambda: source.ending_of(item) is Ending.FINISHED)
    assert source.given_back == []


async def test_the_place_of_preempted_work_is_for_realtime(
    start: Any, eventually: Eventually
) -> None:
    item = in_lane(Lane.BATCH)
    source = FakeSource(item)
    async with start(source, capacity=2) as engine:
        await is_under_way(engine, eventually, item)
        await engine.admission.acquire(Lane.REALTIME)
        asked = asyncio.create_task(engine.admission.acquire(Lane.REALTIME))
        await asyncio.sleep(0)
        assert not asked.done()
        assert engine.drain.preempt()
        await eventually(asked.done)
        assert engine.admission.held(Lane.REALTIME) == 2
        await eventually(lambda: source.pending != [])
        assert engine.drain.in_flight == 0
        engine.admission.release(Lane.REALTIME, 2)
        await eventually(lambda: engine.drain.in_flight == 1)


class LaneBackend(ScriptedBackend):
    """Remembers in which lanes it was asked."""

    lanes: ClassVar[list[Lane]] = []

    def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        self.lanes.append(request.lane)
        return super().generate(request, tally)


async def test_work_whose_deadline_is_near_rises_in_the_engine(
    start: Any, eventually: Eventually
) -> None:
    items = [in_lane(Lane.BATCH, SAY_AB, urgent=urgent) for urgent in (True, False)]
    source = FakeSource(*items)
    LaneBackend.lanes.clear()
    async with start(source, LaneBackend):
        await eventually(lambda: len(source.results) == 2)
    assert sorted(LaneBackend.lanes) == [Lane.BATCH, Lane.FLEX]
    assert {result.item.request.lane for result in source.results} == {Lane.BATCH}
