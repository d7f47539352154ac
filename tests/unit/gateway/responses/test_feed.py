"""The feed of what has ended in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest
from sference_sdk.models import StreamInferenceCompletionEvent

from gateway.responses import feed, streams
from gateway.responses.feed import Feed, Part, Wanted, decode_wanted
from gateway.threads import DatabaseThreads
from inference.errors import ErrorCode, TandemError
from jobs import responses
from tests.conftest import Eventually
from tests.unit.gateway.responses.conftest import BLUE, KEY, RED, MakeResponse, end

T = TypeVar("T")


def wanted(**query: str) -> Wanted:
    return decode_wanted(query)


def ids(part: Part) -> list[str]:
    return [event["completion_id"] for event in part.events]


@pytest.fixture
def five(make_response: MakeResponse) -> None:
    """End five responses of a team, and one of another between them."""
    for _ in range(5):
        end(make_response(background=True))
    end(make_response(RED, background=True))
    end(make_response())


@pytest.mark.usefixtures("five")
def test_without_a_cursor_the_newest_come_first() -> None:
    part = feed.read(BLUE, wanted(limit="2"))
    assert (ids(part), part.has_more) == (["evt_5", "evt_4"], True)


@pytest.mark.usefixtures("five")
def test_who_waits_is_told_the_newest_last_to_go_on_behind_it() -> None:
    part = feed.read(BLUE, wanted(limit="2", wait_ms="5000"))
    assert (ids(part), part.has_more) == (["evt_4", "evt_5"], True)
    part = feed.read(BLUE, wanted(limit="2", wait_ms="5000", ending_before="evt_5"))
    assert ids(part) == ["evt_4", "evt_3"]


@pytest.mark.usefixtures("five")
def test_what_came_after_one_is_read_in_the_order_in_which_it_came() -> None:
    part = feed.read(BLUE, wanted(limit="2", starting_after="evt_2"))
    assert (ids(part), part.has_more) == (["evt_3", "evt_4"], True)
    part = feed.read(BLUE, wanted(limit="2", starting_after="evt_4"))
    assert (ids(part), part.has_more) == (["evt_5"], False)


@pytest.mark.usefixtures("five")
def test_what_came_before_one_is_read_backwards() -> None:
    part = feed.read(BLUE, wanted(ending_before="evt_3"))
    assert (ids(part), part.has_more) == (["evt_2", "evt_1"], False)


def test_a_streams_responses_are_in_its_feed_alone(make_response: MakeResponse) -> None:
    stream = streams.create(BLUE, KEY, "a")
    inside = end(make_response(background=True, stream_id=str(stream.pk), custom_id="row"))
    outside = end(make_response(background=True))
    (event,) = feed.read(BLUE, wanted(stream_id=str(stream.pk))).events
    assert (event["response_id"], event["custom_id"]) == (f"resp_{inside.pk}", "row")
    (event,) = feed.read(BLUE, wanted()).events
    assert event["response_id"] == f"resp_{outside.pk}"
    with pytest.raises(TandemError) as raised:
        feed.read(RED, wanted(stream_id=str(stream.pk)))
    assert raised.value.code is ErrorCode.NOT_FOUND


def test_an_event_is_what_sferences_client_reads(make_response: MakeResponse) -> None:
    end(make_response(background=True))
    end(make_response(background=True), responses.failed(ErrorCode.INTERNAL, "no"))
    failed, done = (
        StreamInferenceCompletionEvent.model_validate(event)
        for event in feed.read(BLUE, wanted()).events
    )
    assert (failed.status, failed.result) == ("failed", None)
    assert failed.error == {"code": "internal", "message": "no"}
    assert (done.status, done.error) == ("completed", None)
    assert done.result is not None
    assert done.result["output"][0]["content"][0]["text"] == "hello"
    assert done.completed_at is not None


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"starting_after": "7"}, "starting_after"),
        ({"ending_before": "evt_"}, "ending_before"),
        ({"starting_after": "evt_1", "ending_before": "evt_2"}, "ending_before"),
        ({"limit": "0"}, "limit"),
        ({"wait_ms": "-1"}, "wait_ms"),
    ],
)
def test_it_names_the_parameter_that_is_wrong(query: dict[str, str], param: str) -> None:
    with pytest.raises(TandemError) as raised:
        decode_wanted(query)
    assert raised.value.param == param


def test_a_wait_ends_before_sferences_client_gives_up() -> None:
    assert wanted(wait_ms="30000").wait_s == 25


class PlayedThreads:
    """Answers reads from a feed that a test writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[dict[str, Any]] = []
        self.error: TandemError | None = None
        self.reads = 0
        monkeypatch.setattr(feed, "_LOOK_S", 0.01)
        monkeypatch.setattr(feed, "read", self._read)
        monkeypatch.setattr(feed, "_lasts", lambda teams: dict.fromkeys(teams, len(self.events)))

    async def run(self, call: Callable[[], T]) -> T:
        if self.error:
            error, self.error = self.error, None
            raise error
        return call()

    def _read(self, team_id: int, wanted: Wanted) -> Part:
        self.reads += 1
        return Part(self.events[wanted.after or 0 :], False, len(self.events))


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> PlayedThreads:
    return PlayedThreads(monkeypatch)


@pytest.fixture
def waiting_feed(threads: PlayedThreads) -> Feed:
    return Feed(cast("DatabaseThreads", threads))


async def test_news_end_the_wait_of_everybody(
    threads: PlayedThreads, waiting_feed: Feed, eventually: Eventually
) -> None:
    waits = [
        asyncio.create_task(waiting_feed.wait(BLUE, wanted(wait_ms="20000"))) for _ in range(3)
    ]
    await eventually(lambda: threads.reads == 3)
    threads.events.append({"completion_id": "evt_1"})
    assert [ids(part) for part in await asyncio.gather(*waits)] == [["evt_1"]] * 3
    await waiting_feed.stop()


async def test_what_is_there_is_not_waited_for(threads: PlayedThreads, waiting_feed: Feed) -> None:
    threads.events.append({"completion_id": "evt_1"})
    assert ids(await waiting_feed.wait(BLUE, wanted(wait_ms="20000"))) == ["evt_1"]
    await waiting_feed.stop()


async def test_a_wait_ends_in_time_with_nothing(waiting_feed: Feed) -> None:
    assert ids(await waiting_feed.wait(BLUE, wanted(wait_ms="30"))) == []
    await waiting_feed.stop()


async def test_a_database_that_is_away_meanwhile_ends_no_wait(
    threads: PlayedThreads, waiting_feed: Feed, eventually: Eventually
) -> None:
    waiting = asyncio.create_task(waiting_feed.wait(BLUE, wanted(wait_ms="20000")))
    await eventually(lambda: threads.reads == 1)
    threads.error = TandemError(ErrorCode.UNAVAILABLE, "away")
    await eventually(lambda: threads.error is None)
    threads.events.append({"completion_id": "evt_1"})
    assert ids(await waiting) == ["evt_1"]
    await waiting_feed.stop()
