"""Answering with a response of the background: at once with its object, or with its stream."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from gateway.dialects.responses.encode import ResponseEncoder
from gateway.errors import OPENAI
from gateway.http.pace import Pace
from gateway.metrics import count_refusal
from gateway.responses import rows
from gateway.responses.clients import said_to
from gateway.responses.follow import Followed
from gateway.responses.placement import Placement
from gateway.responses.store import Draft
from gateway.serving.answers import AnswerConsumer
from inference.errors import TandemError
from inference.events import Event
from jobs.models import StoredResponse

_FROM_THE_START = -1


class Paced:
    """A source that gives no more before its client has taken what there was.

    What is kept is there all at once: a client that reads it slowly is not behind with anything.
    """

    def __init__(self, source: Followed, pace: Callable[[], Pace]) -> None:
        self._source = source
        self._pace = pace

    async def next(self) -> list[Event]:
        """Return the next events; none to a client that is gone."""
        # Not for longer: an answer cannot end while somebody holds it back.
        with self._pace() as pace:
            is_there = await pace.wait()
        return await self._source.next() if is_there else []

    def wake(self) -> None:
        """Let a waiting `next` return."""
        self._source.wake()


class BackgroundConsumer(AnswerConsumer):
    """For consumers that answer with what is made in the background."""

    dialect = "responses"
    envelope = OPENAI
    encoder: ResponseEncoder | None = None

    async def answer_in_background(self, draft: Draft, placement: Placement) -> None:
        """Have a response made, and answer with what there is of it.

        `draft.visit.prompt` has the lane BACKGROUND and the end of the window as its deadline.
        Raises what the desk raises, and what `Responses.background` does.
        """
        visit = draft.visit
        try:
            announced = await self.services.desk.announce(visit, self.services.directory.prices)
        except TandemError as error:
            count_refusal(self.dialect, visit.entry.id, error)
            raise
        self.extra_headers += announced.headers
        row = await self.services.responses.background(draft, placement, announced)
        if visit.stream:
            await self.follow(row)
        else:
            await self.respond_response(row)

    async def respond_response(self, row: StoredResponse, **more: object) -> None:
        """Answer with the response object, and `more` beside its fields."""
        shown = await self.services.database.run(lambda: rows.shown(row))
        await self.respond_json(msgspec.json.encode(said_to(self.request, shown) | more))

    async def follow(self, row: StoredResponse, starting_after: int = _FROM_THE_START) -> None:
        """Answer with the events behind the one with this sequence number, to the last.

        A caller that leaves stops nothing but this (bugs 42, 43).
        """
        source = self.services.responses.follow(row)

        def ended_at_s() -> float:
            ended_at = source.row.ended_at
            return time.time() if ended_at is None else ended_at.timestamp()

        shape = await self.services.database.run(lambda: rows.shape_of(row))
        self.encoder = ResponseEncoder(shape, skip_until=starting_after, clock=ended_at_s)
        try:
            await self.relay(self._paced(source), self.encoder)
        finally:
            source.close()

    def _paced(self, source: Followed) -> Paced:
        return Paced(source, lambda: Pace(self.base_send, self.services.config.REQUEST_TIMEOUT_S))

    def encode_failure(self, error: TandemError) -> bytes:
        """An error after the first byte is an event."""
        encoder = self.encoder
        return b"" if encoder is None or encoder.over else encoder.fail(error)
