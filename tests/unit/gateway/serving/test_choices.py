"""Several answers to one prompt: when each begins, and what one failure does to the others."""

from __future__ import annotations

import asyncio

import pytest

from gateway.serving.choices import Choices, Chosen
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, FinishReason, Started, TextDelta, Usage
from inference.request import TextPart
from inference.transport.frames import Frame
from inference.transport.run import Bell, Run
from tests.contracts.requests import make_request

FINISHED = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
)
FAILED = Failed(code=ErrorCode.ENGINE_LOST, message="the engine stopped")


class Rig:
    """Runs whose engine the test plays."""

    def __init__(self, others: int = 1, refusal: TandemError | None = None) -> None:
        self.bell = Bell()
        self.left: list[Run] = []
        self.runs: list[Run] = [self._run()]
        self._others = others
        self._refusal = refusal
        self.choices = Choices(self.runs[0], self.bell, self._begin if others else None)

    def say(self, choice: int, *events: Event) -> None:
        run = self.runs[choice]
        for event in events:
            run.receive(Frame(run.request.id, 0, "e1", run._next_seq, event))

    def _run(self) -> Run:
        return Run(make_request("hi"), "queue", self.left.append, self.bell)

    async def _begin(self) -> list[Run]:
        if self._refusal is not None:
            raise self._refusal
        made = [self._run() for _ in range(self._others)]
        self.runs += made
        return made


async def test_one_answer_is_a_stream_of_its_own_events() -> None:
    rig = Rig(others=0)
    rig.say(0, Started(1), TextDelta("a"), FINISHED)
    assert await rig.choices.next() == [
        Chosen(0, Started(1)),
        Chosen(0, TextDelta("a")),
        Chosen(0, FINISHED),
    ]


async def test_the_others_begin_when_the_first_has_put_something_out() -> None:
    rig = Rig(others=2)
    rig.say(0, Started(1))
    await rig.choices.next()
    rig.choices.wake()
    waiting = asyncio.create_task(rig.choices.next())
    await asyncio.sleep(0)
    assert len(rig.runs) == 1
    rig.say(0, TextDelta("a"))
    assert await waiting == [Chosen(0, TextDelta("a"))]
    waiting = asyncio.create_task(rig.choices.next())
    await asyncio.sleep(0)
    assert len(rig.runs) == 3
    rig.say(2, Started(1))
    assert await waiting == [Chosen(2, Started(1))]


async def test_a_woken_source_has_nothing_to_tell() -> None:
    rig = Rig()
    waiting = asyncio.create_task(rig.choices.next())
    await asyncio.sleep(0)
    rig.choices.wake()
    assert await waiting == []


async def test_what_came_while_nobody_waited_is_there() -> None:
    rig = Rig()
    rig.say(0, Started(1), TextDelta("a"))
    await rig.choices.next()
    waiting = asyncio.create_task(rig.choices.next())
    await asyncio.sleep(0)
    rig.say(1, Started(1))
    rig.say(0, TextDelta("b"))
    assert await waiting == [Chosen(0, TextDelta("b")), Chosen(1, Started(1))]


async def test_whole_answers_come_in_their_order() -> None:
    rig = Rig()
    rig.say(0, Started(1), TextDelta("a"))
    whole = asyncio.create_task(rig.choices.answers(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    rig.say(1, Started(1), TextDelta("b"), FINISHED)
    rig.say(0, FINISHED)
    assert [answer.parts for answer in await whole] == [(TextPart("a"),), (TextPart("b"),)]


async def test_when_one_fails_all_do() -> None:
    rig = Rig()
    rig.say(0, Started(1), TextDelta("a"))
    await rig.choices.next()
    waiting = asyncio.create_task(rig.choices.next())
    await asyncio.sleep(0)
    rig.say(1, Started(1), TextDelta("b"), FAILED)
    rig.say(0, TextDelta("c"))
    assert (await waiting)[-1] == Chosen(1, FAILED)
    # The engine stops, and what was cut off is a failure to accounting too.
    assert rig.left == [rig.runs[0]]
    assert [run.end for run in rig.runs] == [FAILED, FAILED]


async def test_when_the_others_cannot_begin_the_first_ends_too() -> None:
    rig = Rig(refusal=TandemError(ErrorCode.NO_ENGINE, "no engine"))
    rig.say(0, Started(1), TextDelta("a"))
    with pytest.raises(TandemError, match="no engine"):
        await rig.choices.answers(2)
    assert rig.left == rig.runs
    assert rig.runs[0].end == Failed(code=ErrorCode.NO_ENGINE, message="no engine")


async def test_a_failed_answer_is_an_error() -> None:
    rig = Rig(others=0)
    rig.say(0, Started(1), TextDelta("a"), FAILED)
    with pytest.raises(TandemError) as caught:
        await rig.choices.answers(1)
    assert caught.value.code is ErrorCode.ENGINE_LOST
