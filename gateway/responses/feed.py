"""The feed of a team's background responses that have ended, in the order in which they did.

Every one has a number, and numbers become visible in their order: whoever reads on from the last
one misses none. With no cursor the newest come first, as sference's SDK expects it; but the newest
last for who would wait for them, as its CLI does, which goes on behind the last that it was told.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from gateway.dialects.responses.items import public_id
from gateway.dialects.validation import invalid_at
from gateway.http.query import integer
from gateway.responses.paging import MAX_LIMIT
from gateway.responses.rows import error_of, shown, stream_of
from gateway.responses.times import iso
from gateway.threads import DatabaseThreads
from inference.errors import TandemError
from jobs.models import RequestRecord, ResponseFeed, StoredResponse

logger = logging.getLogger(__name__)

DEFAULT_LIMIT = 20
# sference's clients wait for 30 s for any answer, and may ask to wait for so long.
MAX_WAIT_S = 25.0
_LOOK_S = 0.25

_ID = re.compile("evt_([0-9]{1,18})")


class Wanted(NamedTuple):
    """Which part of the feed is asked for, and how long an empty one may be waited for."""

    stream_id: str | None
    after: int | None
    before: int | None
    limit: int
    wait_s: float


class Part(NamedTuple):
    """A part of the feed. `last` is the feed's last number at its reading."""

    events: list[dict[str, Any]]
    has_more: bool
    last: int


def completion_id(number: int) -> str:
    """Return the id of an event: its place in its team's feed."""
    return f"evt_{number}"


def decode_wanted(query: Mapping[str, str]) -> Wanted:
    """Read the parameters of a query string. Raises INVALID_REQUEST naming a wrong one."""
    after, before = _number(query, "starting_after"), _number(query, "ending_before")
    if after is not None and before is not None:
        raise invalid_at("ending_before", "cannot be combined with starting_after")
    wait_ms = integer(query, "wait_ms", 0, at_least=0, at_most=10**9)
    return Wanted(
        stream_id=query.get("stream_id"),
        after=after,
        before=before,
        limit=integer(query, "limit", DEFAULT_LIMIT, at_least=1, at_most=MAX_LIMIT),
        wait_s=min(wait_ms / 1000, MAX_WAIT_S),
    )


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (found := _ID.fullmatch(text)):
        raise invalid_at(name, "should be the completion_id of an event")
    return int(found[1])


def read(team_id: int, wanted: Wanted) -> Part:
    """Return the part that is there now. Raises NOT_FOUND for an unknown stream.

    It speaks to the database, and belongs into a thread.
    """
    # Before the rows: what comes in between is then news to whoever waits.
    last = ResponseFeed.objects.filter(pk=team_id).values_list("last", flat=True).first() or 0
    rows = StoredResponse.objects.filter(team_id=team_id, number__isnull=False)
    if wanted.stream_id is None:
        rows = rows.filter(stream__isnull=True)
    else:
        rows = rows.filter(stream=stream_of(team_id, wanted.stream_id, "stream_id"))
    if wanted.after is not None:
        rows = rows.filter(number__gt=wanted.after).order_by("number")
    else:
        rows = rows.order_by("-number")
        if wanted.before is not None:
            rows = rows.filter(number__lt=wanted.before)
    found = list(rows.defer("items", "events")[: wanted.limit + 1])
    shown_rows = found[: wanted.limit]
    records = RequestRecord.objects.in_bulk([row.pk for row in shown_rows])
    events = [_event(row, records.get(row.pk)) for row in shown_rows]
    if wanted.after is None and wanted.before is None and wanted.wait_s > 0:
        events.reverse()
    return Part(events, len(found) > wanted.limit, last)


def _event(row: StoredResponse, record: RequestRecord | None) -> dict[str, Any]:
    error = error_of(row)
    asked = record.input_tokens if record else 0
    said = record.output_tokens if record else 0
    return {
        "completion_id": completion_id(row.number or 0),
        "object": "response.completion",
        "response_id": public_id(str(row.pk)),
        "custom_id": row.custom_id or None,
        "stream_id": str(row.stream_id) if row.stream_id else None,
        "status": row.status,
        "result": shown(row) if row.answer else None,
        "error": {"code": error.code.value, "message": error.message} if error else None,
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": asked + said,
        "cost_micros": row.cost_micros,
        "completed_at": iso(row.ended_at),
    }


class Feed:
    """Reads feeds for those who wait for news: one query looks for all of them."""

    def __init__(self, threads: DatabaseThreads) -> None:
        self._threads = threads
        self._waiting: dict[asyncio.Future[None], tuple[int, int]] = {}
        self._task: asyncio.Task[None] | None = None

    async def wait(self, team_id: int, wanted: Wanted) -> Part:
        """Return a part of a team's feed; while it is empty, wait for news as long as is asked.

        Raises NOT_FOUND for an unknown stream, UNAVAILABLE.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wanted.wait_s
        while True:
            part = await self._threads.run(lambda: read(team_id, wanted))
            left_s = until - loop.time()
            if part.events or wanted.before is not None or left_s <= 0:
                return part
            if not await self._beyond(team_id, part.last, left_s):
                return part

    async def _beyond(self, team_id: int, last: int, timeout_s: float) -> bool:
        news = asyncio.get_running_loop().create_future()
        self._waiting[news] = team_id, last
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_out(), name="feed-watch")
        try:
            done, _ = await asyncio.wait([news], timeout=timeout_s)
        finally:
            del self._waiting[news]
        return bool(done)

    async def stop(self) -> None:
        """End the looking out."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _look_out(self) -> None:
        while self._waiting:
            await asyncio.sleep(_LOOK_S)
            teams = {team_id for team_id, _ in self._waiting.values()}
            try:
                lasts = await self._threads.run(partial(_lasts, teams))
            except TandemError as error:
                logger.warning("no news of ended responses: %s", error.message)
                continue
            for news, (team_id, last) in self._waiting.items():
                if lasts.get(team_id, 0) > last and not news.done():
                    news.set_result(None)


def _lasts(teams: set[int]) -> dict[int, int]:
    return dict(ResponseFeed.objects.filter(pk__in=teams).values_list("pk", "last"))
