"""The store of responses, as the gateway's consumers see it: `services.responses`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from django.db import transaction

from gateway.accounting.credentials import hide_credentials
from gateway.accounting.desk import Announced, Visit
from gateway.accounting.origin import origin_of
from gateway.config import Config
from gateway.dialects.responses.items import Item, created_at_s, read_id
from gateway.dialects.unknown import MAX_KEPT_NAMES
from gateway.keys import Principal
from gateway.responses import rows, streams
from gateway.responses.follow import Followed, Log
from gateway.responses.keep import Kept
from gateway.responses.placement import Placement
from gateway.threads import DatabaseThreads
from inference.errors import ErrorCode, TandemError
from inference.request import GenerationRequest
from inference.transport.run import Run
from jobs import packing, responses
from jobs.models import StoredResponse
from jobs.responses import NewResponse, ResponseEnd
from jobs.work.enqueue import NewWork
from jobs.work.prefix import prefix_of

_DIALECT = "responses"


class Draft(NamedTuple):
    """A response that is about to be made: `visit.prompt.id` is its id.

    `body` is the wire request (what `encode.Shape.body` is), `history` the items of the
    conversation before it. `store` is what the caller asked for.
    """

    visit: Visit
    body: dict[str, Any]
    history: list[Item]
    store: bool


class Responses:
    """One for each gateway process. `follow_log` opens the log of the request with this id."""

    def __init__(
        self, config: Config, threads: DatabaseThreads, follow_log: Callable[[str], Log]
    ) -> None:
        self._kept_for = timedelta(days=config.RESPONSE_RETENTION_DAYS)
        self._threads = threads
        self._follow_log = follow_log
        self._tasks: set[asyncio.Task[Any]] = set()

    def keeps(self, principal: Principal) -> bool:
        """Whether a team's responses are kept at all: with zero data retention, none is."""
        return not principal.zero_data_retention

    async def history(self, principal: Principal, previous_id: str) -> list[Item]:
        """Return everything said up to the end of a response.

        Raises NOT_FOUND, INVALID_REQUEST while it has not ended, UNAVAILABLE.
        """
        team_id = principal.team_id
        return await self._threads.run(lambda: rows.conversation(team_id, previous_id))

    async def items(self, principal: Principal, item_ids: Sequence[str]) -> dict[str, Item]:
        """Return those of the items with these ids that are in the team's responses."""
        team_id = principal.team_id
        return await self._threads.run(lambda: rows.referenced(team_id, item_ids))

    @asynccontextmanager
    async def keep(self, draft: Draft, run: Run) -> AsyncIterator[Kept]:
        """Keep a response that its caller waits for: its last event comes once it is kept."""
        stored = draft.store and self.keeps(draft.visit.principal)
        book = _Book(self._threads, lambda: self._new(draft)) if stored else None
        kept = Kept(run, book, streamed=draft.visit.stream)
        try:
            yield kept
        finally:
            if writing := kept.close():
                self._remember(writing)

    async def background(
        self, draft: Draft, placement: Placement, announced: Announced
    ) -> StoredResponse:
        """Store a response and the work that makes it, both or neither; return it.

        Raises INVALID_REQUEST for a team that keeps nothing, NOT_FOUND and CONFLICT for the
        stream, UNAVAILABLE.
        """
        if not self.keeps(draft.visit.principal):
            raise TandemError(
                ErrorCode.INVALID_REQUEST,
                "background: must be false, for your team keeps no data (zero data retention)",
                param="background",
            )
        # Shielded: with the caller gone the response is made all the same, or not at all.
        return await asyncio.shield(
            self._spawn(self._threads.run(lambda: self._store(draft, placement, announced)))
        )

    def follow(self, row: StoredResponse) -> Followed:
        """Return the events of a background response that is streamed. Close it after."""
        team_id, response_id = row.team_id, str(row.id)

        def look() -> tuple[StoredResponse, bool]:
            # In this order: what an engine says at its end is in the row before its work is gone.
            at_work = rows.is_at_work(rows.find(team_id, response_id))
            return rows.find(team_id, response_id), at_work

        return Followed(row, self._follow_log(response_id), lambda: self._threads.run(look))

    async def stop(self) -> None:
        """Wait until all that has begun is written."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _store(self, draft: Draft, placement: Placement, announced: Announced) -> StoredResponse:
        visit = draft.visit
        stream_id = placement.stream_id and str(placement.stream_id)
        new = msgspec.structs.replace(
            self._new(draft),
            background=True,
            stream_id=stream_id,
            custom_id=placement.custom_id,
        )
        work = _work(visit, announced, new)
        with transaction.atomic():
            if placement.stream_id is not None:
                streams.lock_open(visit.principal.team_id, placement.stream_id)
            responses.create(new, work)
        return rows.find(visit.principal.team_id, new.id)

    def _new(self, draft: Draft) -> NewResponse:
        visit, previous = draft.visit, draft.body.get("previous_response_id")
        created_at = datetime.fromtimestamp(created_at_s(visit.prompt.id), UTC)
        return NewResponse(
            id=visit.prompt.id,
            team_id=visit.principal.team_id,
            key_id=visit.principal.key_id,
            model=visit.prompt.model,
            lane=visit.prompt.lane,
            created_at=created_at,
            deadline_at=datetime.fromtimestamp(visit.prompt.deadline_s, UTC),
            expires_at=created_at + self._kept_for,
            streamed=visit.stream,
            previous_id=read_id(previous) if previous else None,
            body=msgspec.json.encode(hide_credentials(draft.body)),
            items=msgspec.json.encode(draft.history),
        )

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._remember(asyncio.create_task(coroutine))

    def _remember(self, task: asyncio.Task[Any]) -> asyncio.Task[Any]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Book:
    """Writes down a response; making what is written is as little the event loop's work."""

    def __init__(self, threads: DatabaseThreads, make: Callable[[], NewResponse]) -> None:
        self._threads = threads
        self._make = make
        self._id = ""

    async def begin(self) -> None:
        await self._threads.run(self._create)

    async def end(self, how: ResponseEnd, ended_at: datetime) -> None:
        await self._threads.run(lambda: responses.finish(self._id, how, ended_at))

    def _create(self) -> None:
        new = self._make()
        self._id = new.id
        responses.create(new)


def _work(visit: Visit, announced: Announced, new: NewResponse) -> NewWork:
    principal, prompt = visit.principal, visit.prompt
    origin = {
        "team_name": principal.team_name,
        "key_name": principal.key_name,
        **origin_of(visit.asked)._asdict(),
    }
    if new.stream_id:
        origin["stream_id"] = new.stream_id
    return NewWork(
        id=prompt.id,
        team_id=principal.team_id,
        key_id=principal.key_id,
        dialect=_DIALECT,
        model=prompt.model,
        lane=prompt.lane,
        created_at=new.created_at,
        deadline_at=new.deadline_at,
        custom_id=new.custom_id,
        max_tokens=prompt.sampling.max_tokens,
        body_bytes=len(visit.asked.body),
        body_digest=announced.body_digest,
        ignored_fields=visit.ignored[:MAX_KEPT_NAMES],
        hold_micros=announced.hold_micros,
        logged=visit.stream,
        origin=origin,
        request=packing.pack_request(_repeatable(visit) if visit.stream else prompt),
        prefix=prefix_of(prompt),
    )


def _repeatable(visit: Visit) -> GenerationRequest:
    """Give a request a seed: an engine that goes on for another must come to the same text.

    Anthropic's API has none, and a request that has one is refused there.
    """
    prompt = visit.prompt
    if prompt.sampling.seed is not None or visit.entry.backend == "anthropic":
        return prompt
    sampling = msgspec.structs.replace(prompt.sampling, seed=secrets.randbelow(2**31))
    return msgspec.structs.replace(prompt, sampling=sampling)
