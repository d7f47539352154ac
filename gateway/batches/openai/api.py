"""The calls on `/v1/batches` as OpenAI's clients make them, for the consumers that route them."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from gateway.batches import store
from gateway.batches.creation import NewBatch
from gateway.batches.openai.creation import create
from gateway.batches.openai.show import batch_name, parse_batch_name, show_batch
from gateway.batches.openai.wire import decode_batch
from gateway.batches.store import Listing
from gateway.dialects.validation import invalid_at
from gateway.http.query import integer
from gateway.keys import Principal
from gateway.lists import listed
from gateway.services import Services
from inference.errors import ErrorCode, TandemError
from jobs import batches
from jobs.models import Batch

_DEFAULT_LIMIT, _MAX_LIMIT = 20, 100


class OpenAIBatches:
    """What one key may do with its team's batches. Answers are to be encoded as they are.

    Batches are named as in the path. All of them raise UNAVAILABLE without a database.
    """

    def __init__(self, services: Services, principal: Principal) -> None:
        self._database = services.database
        self._team_id = principal.team_id

    async def create(self, new: NewBatch, body: dict[str, Any]) -> dict[str, Any]:
        """Make a batch of a file. Raises what `gateway.batches.openai.creation.create` raises."""
        decoded = decode_batch(body)
        return show_batch(await self._database.run(partial(create, new, decoded)))

    async def retrieve(self, name: str) -> dict[str, Any]:
        """Return a batch. Raises NOT_FOUND."""
        return show_batch(await self._find(name))

    async def cancel(self, name: str) -> dict[str, Any]:
        """Have a batch run no more rows. Raises NOT_FOUND, and CONFLICT if it is over already."""
        batch = await self._find(name)
        batch = await self._database.run(partial(batches.cancel, batch.id))
        if batch.cancelling_at is None:
            raise TandemError(
                ErrorCode.CONFLICT, f"Cannot cancel a batch with status '{batch.status}'."
            )
        return show_batch(batch)

    async def page(self, query: list[tuple[str, str]]) -> dict[str, Any]:
        """Return a page of batches, newest first. Raises INVALID_REQUEST."""
        asked = dict(query)
        listing = Listing(
            team_id=self._team_id,
            form=Batch.Form.OPENAI,
            limit=integer(asked, "limit", _DEFAULT_LIMIT, at_least=1, at_most=_MAX_LIMIT),
            after=_after(asked.get("after")),
        )
        found, has_more = await self._database.run(partial(store.page, listing))
        return listed([show_batch(batch) for batch in found], has_more=has_more)

    async def _find(self, name: str) -> Batch:
        batch_id = parse_batch_name(name)
        return await self._database.run(
            partial(store.find, batch_id, self._team_id, Batch.Form.OPENAI, name[:100])
        )


def _after(text: str | None) -> UUID | None:
    if text is None:
        return None
    batch_id = parse_batch_name(text)
    if batch_id is None:
        raise invalid_at("after", f"must be the id of a batch, as {batch_name(UUID(int=0))}")
    return batch_id
