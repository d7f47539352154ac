"""The store, with the database behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import uuid_utils

from gateway.accounting.desk import Announced, Visit
from gateway.config import Config
from gateway.http.request import ApiRequest
from gateway.keys import Principal
from gateway.responses import streams
from gateway.responses.placement import Placement
from gateway.responses.store import Draft, Responses
from gateway.threads import DatabaseThreads
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Finished, FinishReason, Started, TextDelta, Usage
from inference.request import Lane
from inference.transport.frames import Frame
from inference.transport.run import Run
from jobs.models import StoredResponse, Work
from jobs.packing import unpack_request
from jobs.work.prefix import prefix_of
from tests.contracts.requests import make_entry, make_request
from tests.unit.gateway.responses.conftest import BLUE, KEY

pytestmark = pytest.mark.django_db(transaction=True)

USAGE = Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
DONE = Finished(reason=FinishReason.END, usage=USAGE)
ANNOUNCED = Announced(hold_micros=12, body_digest=b"d" * 32, headers=[])
PLACEMENT = Placement(window_s=3600, stream_id=None, custom_id="row-1")
MINE = Principal(key_id=KEY, key_name="laptop", team_id=BLUE, team_name="blue")


@pytest.fixture
async def threads() -> AsyncIterator[DatabaseThreads]:
    """Return the threads that every look into the database is made in, so that none stays open."""
    made = DatabaseThreads(2)
    yield made
    await made.stop()


@pytest.fixture
async def store(
    no_settings: pytest.MonkeyPatch, threads: DatabaseThreads
) -> AsyncIterator[Responses]:
    def no_log(request_id: str) -> Any:
        raise AssertionError("nobody follows")

    made = Responses(Config(), threads, no_log)
    yield made
    await made.stop()


def a_draft(
    *,
    stream: bool = False,
    store: bool = True,
    lane: Lane = Lane.REALTIME,
    principal: Principal = MINE,
    **fields: Any,
) -> Draft:
    prompt = msgspec.structs.replace(
        make_request("hi"),
        id=str(uuid_utils.uuid7()),
        lane=lane,
        deadline_s=float(round(time.time() + 3600)),
    )
    asked = ApiRequest({"headers": [(b"user-agent", b"test/1")], "client": ("10.0.0.9", 1)}, b"{}")
    visit = Visit(
        asked=asked,
        principal=principal,
        entry=make_entry(),
        prompt=prompt,
        dialect="responses",
        stream=stream,
        ignored=("speed",),
    )
    body = {"model": "m", "input": "hi", **fields}
    return Draft(visit=visit, body=body, history=[], store=store)


def a_run(draft: Draft, *events: Event) -> Run:
    run = Run(draft.visit.prompt, "q", lambda run: None)
    for seq, event in enumerate(events):
        run.receive(Frame(run.request_id, 0, "e", seq, event))
    return run


async def test_an_answer_is_there_to_be_continued_once_its_caller_has_it(
    store: Responses, threads: DatabaseThreads
) -> None:
    draft = a_draft()
    run = a_run(draft, Started(1), TextDelta("hello"), DONE)
    async with store.keep(draft, run) as source:
        await source.next()
        items = await store.history(MINE, f"resp_{run.request_id}")
    assert [item["content"][0]["text"] for item in items] == ["hi", "hello"]
    row = await threads.run(lambda: StoredResponse.objects.get(pk=run.request_id))
    assert (row.status, row.background, row.ended_at) == ("completed", False, source.ended_at)
    found = await store.items(MINE, [items[1]["id"], "msg_1"])
    assert found == {items[1]["id"]: items[1]}


@pytest.mark.parametrize(
    ("store_it", "retains_nothing"), [(False, False), (True, True)], ids=["store", "retention"]
)
async def test_what_is_not_to_be_stored_is_not(
    store: Responses, threads: DatabaseThreads, store_it: bool, retains_nothing: bool
) -> None:
    principal = msgspec.structs.replace(MINE, zero_data_retention=retains_nothing)
    draft = a_draft(store=store_it, principal=principal)
    async with store.keep(draft, a_run(draft, Started(1), DONE)) as source:
        await source.next()
    assert await threads.run(StoredResponse.objects.count) == 0


async def test_who_leaves_a_stream_has_cancelled_its_response(
    store: Responses, threads: DatabaseThreads
) -> None:
    draft = a_draft(stream=True)
    async with store.keep(draft, a_run(draft, Started(1))) as source:
        await source.next()
    await store.stop()
    row = await threads.run(lambda: StoredResponse.objects.get(pk=draft.visit.prompt.id))
    assert row.status == "cancelled"


async def test_a_background_response_and_its_work_are_stored_together(
    store: Responses, threads: DatabaseThreads
) -> None:
    draft = a_draft(lane=Lane.BACKGROUND)
    row = await store.background(draft, PLACEMENT, ANNOUNCED)
    assert (row.status, row.background, row.custom_id) == ("queued", True, "row-1")
    work = await threads.run(lambda: Work.objects.get(pk=row.pk))
    assert (work.team_id, work.dialect, work.hold_micros) == (BLUE, "responses", 12)
    assert (work.deadline_at, work.custom_id) == (row.deadline_at, "row-1")
    assert (work.logged, work.ignored_fields) == (False, ["speed"])
    assert work.origin["client"] == "test/1"
    assert unpack_request(bytes(work.request)) == draft.visit.prompt
    assert work.prefix == prefix_of(draft.visit.prompt)


async def test_one_that_is_streamed_has_a_log_and_a_seed(
    store: Responses, threads: DatabaseThreads
) -> None:
    draft = a_draft(lane=Lane.BACKGROUND, stream=True)
    row = await store.background(draft, PLACEMENT, ANNOUNCED)
    work = await threads.run(lambda: Work.objects.get(pk=row.pk))
    assert (row.streamed, work.logged) == (True, True)
    assert unpack_request(bytes(work.request)).sampling.seed is not None


async def test_one_for_anthropic_s_api_has_no_seed_for_that_has_none(
    store: Responses, threads: DatabaseThreads
) -> None:
    draft = a_draft(lane=Lane.BACKGROUND, stream=True)
    far = draft.visit._replace(entry=make_entry(backend="anthropic"))
    row = await store.background(draft._replace(visit=far), PLACEMENT, ANNOUNCED)
    work = await threads.run(lambda: Work.objects.get(pk=row.pk))
    assert unpack_request(bytes(work.request)) == draft.visit.prompt


async def test_a_caller_that_leaves_meanwhile_changes_nothing(
    store: Responses, threads: DatabaseThreads
) -> None:
    making = asyncio.create_task(
        store.background(a_draft(lane=Lane.BACKGROUND), PLACEMENT, ANNOUNCED)
    )
    await asyncio.sleep(0)
    making.cancel()
    await asyncio.wait([making])
    await store.stop()
    assert (
        await threads.run(StoredResponse.objects.count)
        == await threads.run(Work.objects.count)
        == 1
    )


async def test_a_team_that_keeps_nothing_has_no_background(
    store: Responses, threads: DatabaseThreads
) -> None:
    principal = msgspec.structs.replace(MINE, zero_data_retention=True)
    draft = a_draft(lane=Lane.BACKGROUND, principal=principal)
    with pytest.raises(TandemError) as raised:
        await store.background(draft, PLACEMENT, ANNOUNCED)
    assert raised.value.param == "background"


async def test_a_stream_that_is_closed_takes_nothing_not_even_work(
    store: Responses, threads: DatabaseThreads
) -> None:
    stream = await threads.run(lambda: streams.create(BLUE, KEY, "nightly"))
    placement = PLACEMENT._replace(stream_id=stream.pk)
    row = await store.background(a_draft(lane=Lane.BACKGROUND), placement, ANNOUNCED)
    work = await threads.run(lambda: Work.objects.get(pk=row.pk))
    assert str(row.stream_id) == work.origin["stream_id"] == str(stream.pk)
    await threads.run(lambda: streams.change(BLUE, str(stream.pk), status="archived"))
    with pytest.raises(TandemError) as raised:
        await store.background(a_draft(lane=Lane.BACKGROUND), placement, ANNOUNCED)
    assert raised.value.code is ErrorCode.CONFLICT
    assert await threads.run(Work.objects.count) == 1
