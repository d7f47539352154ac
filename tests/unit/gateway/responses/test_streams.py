"""Streams, in sference's words."""

from __future__ import annotations

import pytest
from sference_sdk.models import Stream

from gateway.responses import streams
from inference.errors import ErrorCode, TandemError
from jobs import responses
from jobs.models import ResponseStream, StoredResponse
from tests.unit.gateway.responses.conftest import BLUE, KEY, RED, MakeResponse, end


@pytest.fixture
def stream(db: None) -> ResponseStream:
    made = streams.create(BLUE, KEY, "nightly")
    return ResponseStream.objects.get(pk=made.pk)


def test_a_new_one_is_open_and_empty(stream: ResponseStream) -> None:
    shown = Stream.model_validate(streams.shown_whole(stream))
    assert (shown.name, shown.status, shown.window) == ("nightly", "open", "24h")
    assert (shown.total_items, shown.completion_ratio) == (0, 0.0)
    assert shown.latest_completion_id is None


def test_it_counts_its_responses(stream: ResponseStream, make_response: MakeResponse) -> None:
    rows = [make_response(background=True, stream_id=str(stream.pk)) for _ in range(4)]
    make_response(background=True)
    end(rows[0])
    end(rows[1], responses.failed(ErrorCode.INTERNAL, "no"))
    end(rows[2], responses.failed(ErrorCode.CANCELLED, ""))
    shown = Stream.model_validate(streams.shown_whole(stream))
    assert (shown.total_items, shown.pending_items) == (4, 1)
    assert (shown.completed_items, shown.failed_items, shown.cancelled_items) == (1, 1, 1)
    assert shown.completion_ratio == 0.75
    assert shown.last_completion_at is not None
    assert shown.latest_completion_id == "evt_3"


def test_a_list_shows_the_teams_own_newest_first(stream: ResponseStream) -> None:
    younger = streams.create(BLUE, KEY, "b")
    streams.create(RED, KEY, "c")
    assert [each.name for each in streams.listed(BLUE)] == [younger.name, stream.name]
    Stream.model_validate(streams.shown(stream))


def test_an_archived_one_takes_no_more_responses(stream: ResponseStream) -> None:
    streams.lock_open(BLUE, stream.pk)
    archived = streams.change(BLUE, str(stream.pk), status="archived")
    assert Stream.model_validate(streams.shown(archived)).archived_at is not None
    with pytest.raises(TandemError, match="is archived") as raised:
        streams.lock_open(BLUE, stream.pk)
    assert raised.value.code is ErrorCode.CONFLICT


def test_cancelling_cancels_what_no_engine_has_begun(
    stream: ResponseStream, make_response: MakeResponse
) -> None:
    waiting, running = (make_response(background=True, stream_id=str(stream.pk)) for _ in range(2))
    elsewhere = make_response(background=True)
    StoredResponse.objects.filter(pk=running.pk).update(status="in_progress")
    for _ in range(2):
        cancelled = streams.change(BLUE, str(stream.pk), status="cancelled")
    assert streams.shown(cancelled)["cancelled_at"] is not None
    found = {row.pk: row.status for row in StoredResponse.objects.all()}
    assert found == {waiting.pk: "cancelled", running.pk: "in_progress", elsewhere.pk: "queued"}


def test_there_is_no_way_back(stream: ResponseStream) -> None:
    streams.change(BLUE, str(stream.pk), status="cancelled")
    with pytest.raises(TandemError, match="is cancelled, and stays it"):
        streams.change(BLUE, str(stream.pk), status="archived")


def test_it_can_be_renamed(stream: ResponseStream) -> None:
    assert streams.change(BLUE, str(stream.pk), name="b").name == "b"
    assert ResponseStream.objects.get(pk=stream.pk).name == "b"


@pytest.mark.parametrize("stream_id", ["nonsense", "0198c5a0-0000-7000-8000-000000000001", None])
def test_anothers_is_not_found(stream: ResponseStream, stream_id: str | None) -> None:
    with pytest.raises(TandemError) as raised:
        streams.change(RED, stream_id or str(stream.pk), name="b")
    assert raised.value.code is ErrorCode.NOT_FOUND
