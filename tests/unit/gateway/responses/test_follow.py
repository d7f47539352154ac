"""Following a background response by its log and its row."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime

import pytest

from gateway.responses import follow
from gateway.responses.follow import Followed
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, FinishReason, Started, TextDelta, Usage
from inference.fold import Answer
from inference.request import TextPart
from jobs.models import StoredResponse
from jobs.packing import pack_answer, pack_events
from tests.conftest import Eventually

Status = StoredResponse.Status
USAGE = Usage(prompt_tokens=1, cached_tokens=0, output_tokens=2)
DONE = Finished(reason=FinishReason.END, usage=USAGE)
SAID: list[Event] = [Started(prompt_tokens=1), TextDelta("a"), TextDelta("b")]
CANCELLED = Failed(code=ErrorCode.CANCELLED, message="the response was cancelled")


class PlayedLog:
    """A log that says what a test puts into it."""

    def __init__(self, *events: Event) -> None:
        self.events = list(events)
        self.closed = False
        self._news = asyncio.Event()

    def put(self, *events: Event) -> None:
        self.events += events
        self._news.set()

    async def next(self) -> list[Event]:
        if not self.events:
            self._news.clear()
            await self._news.wait()
        events, self.events = self.events, []
        return events

    def wake(self) -> None:
        self._news.set()

    def close(self) -> None:
        self.closed = True


class Table:
    """The one row, and whether an engine is at it."""

    def __init__(self) -> None:
        self.row = StoredResponse(id=uuid.uuid4(), background=True, streamed=True, team_id=1)
        self.at_work = True
        self.error: TandemError | None = None
        self.looks = 0

    async def load(self) -> tuple[StoredResponse, bool]:
        self.looks += 1
        if self.error:
            raise self.error
        return self.row, self.at_work

    def end(self, status: Status, events: list[Event]) -> None:
        self.row.status = status
        self.row.ended_at = datetime.now(UTC)
        self.row.events = pack_events(events)
        if status == Status.COMPLETED:
            self.row.answer = pack_answer(Answer(parts=(TextPart("ab"),), finished=DONE))
        self.at_work = False


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_LOOK_S", 0.01)


async def everything(followed: Followed) -> list[Event]:
    return [event async for event in followed]


async def test_it_begins_with_nothing_so_that_the_stream_says_at_once_that_it_is_there() -> None:
    table = Table()
    followed = Followed(table.row, PlayedLog(*SAID), table.load)
    assert await followed.next() == []
    assert await followed.next() == SAID


async def test_one_that_has_ended_is_told_from_its_row_alone() -> None:
    table = Table()
    table.end(Status.COMPLETED, [*SAID, DONE])
    assert await everything(Followed(table.row, PlayedLog(), table.load)) == [*SAID, DONE]


async def test_its_log_is_told_as_it_comes_and_the_row_says_the_end() -> None:
    table, log = Table(), PlayedLog(*SAID)
    followed = Followed(table.row, log, table.load)
    await followed.next()
    assert await followed.next() == SAID
    table.end(Status.COMPLETED, [*SAID, DONE])
    log.put(DONE)
    assert await followed.next() == [DONE]
    assert followed.row.ended_at is not None


async def test_a_log_that_is_lost_in_the_middle_leaves_no_gap_and_no_repeat() -> None:
    table = Table()
    followed = Followed(table.row, PlayedLog(*SAID[:2]), table.load)
    await followed.next()
    assert await followed.next() == SAID[:2]
    table.end(Status.COMPLETED, [*SAID, DONE])
    assert await followed.next() == [SAID[2], DONE]


async def test_what_is_cancelled_before_it_began_ends_without_a_log() -> None:
    table = Table()
    followed = Followed(table.row, PlayedLog(), table.load)
    table.end(Status.CANCELLED, [])
    assert await everything(followed) == [CANCELLED]


async def test_what_is_cancelled_while_it_runs_ends_with_what_the_engine_still_said(
    eventually: Eventually,
) -> None:
    table, log = Table(), PlayedLog(*SAID[:2])
    followed = Followed(table.row, log, table.load)
    await followed.next()
    await followed.next()
    table.row.status = Status.CANCELLED
    waiting = asyncio.create_task(followed.next())
    looks = table.looks
    await eventually(lambda: table.looks > looks + 1)
    assert not waiting.done()
    table.end(Status.CANCELLED, SAID)
    assert await waiting == [SAID[2], CANCELLED]


async def test_a_failure_is_told_with_its_error() -> None:
    table = Table()
    table.end(Status.FAILED, [])
    table.row.error_code, table.row.error_message = "engine_lost", "it was lost"
    (end,) = await everything(Followed(table.row, PlayedLog(), table.load))
    assert end == Failed(code=ErrorCode.ENGINE_LOST, message="it was lost")


async def test_an_engines_last_word_counts_only_if_the_row_agrees() -> None:
    """It may have lost the response to another engine, which goes on with it."""
    table, log = Table(), PlayedLog(*SAID[:2], DONE)
    followed = Followed(table.row, log, table.load)
    await followed.next()
    assert await followed.next() == SAID[:2]
    table.end(Status.COMPLETED, [*SAID, DONE])
    assert await followed.next() == [SAID[2], DONE]


async def test_who_comes_late_gets_what_was_said_in_parts_and_all_of_it() -> None:
    table, said = Table(), [TextDelta(str(number)) for number in range(1000)]
    table.end(Status.COMPLETED, [*said, DONE])
    followed = Followed(table.row, PlayedLog(), table.load)
    parts = [await followed.next()]
    while not parts[-1] or parts[-1][-1] != DONE:
        parts.append(await followed.next())
    assert max(map(len, parts)) < 500
    assert [event for part in parts for event in part] == [*said, DONE]


async def test_between_the_parts_others_have_their_turn() -> None:
    table = Table()
    table.end(Status.COMPLETED, [*(TextDelta("a") for _ in range(1000)), DONE])
    followed = Followed(table.row, PlayedLog(), table.load)
    await followed.next()
    await followed.next()
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "another's")
    await followed.next()
    assert turns


async def test_it_can_be_woken() -> None:
    table = Table()
    followed = Followed(table.row, PlayedLog(), table.load)
    await followed.next()
    waiting = asyncio.create_task(followed.next())
    await asyncio.sleep(0)
    followed.wake()
    assert await waiting == []


async def test_a_database_that_is_away_is_waited_for(eventually: Eventually) -> None:
    table = Table()
    table.error = TandemError(ErrorCode.UNAVAILABLE, "away")
    followed = Followed(table.row, PlayedLog(), table.load)
    await followed.next()
    waiting = asyncio.create_task(followed.next())
    await eventually(lambda: table.looks > 2)
    assert not waiting.done()
    table.error = None
    table.end(Status.COMPLETED, [*SAID, DONE])
    assert await waiting == [*SAID, DONE]


async def test_one_that_is_deleted_meanwhile_ends() -> None:
    table = Table()
    table.error = TandemError(ErrorCode.NOT_FOUND, "gone")
    (end,) = await everything(Followed(table.row, PlayedLog(), table.load))
    assert end == Failed(code=ErrorCode.CANCELLED, message="the response was deleted")


async def test_closing_it_closes_the_log() -> None:
    table, log = Table(), PlayedLog()
    Followed(table.row, log, table.load).close()
    assert log.closed
