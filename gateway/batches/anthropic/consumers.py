"""`/v1/messages/batches`, as Anthropic's clients call it."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import msgspec

from gateway.batches.anthropic.show import batch_name, has_ended, parse_batch_name, show_batch
from gateway.batches.anthropic.wire import decode_rows
from gateway.batches.endpoints import MESSAGES
from gateway.batches.inline import (
    BatchesConsumer,
    InlineBatchConsumer,
    InlineForm,
    ResultsConsumer,
)
from gateway.batches.render import anthropic_line
from gateway.batches.rows import RowReader
from gateway.batches.store import Listing, delete, find, page
from gateway.dialects.anthropic.models import decode_page
from gateway.dialects.validation import invalid
from gateway.http.request import ApiRequest
from inference.errors import ErrorCode, TandemError
from jobs.batches import cancel
from jobs.models import Batch

_FORM = Batch.Form.ANTHROPIC
_INLINE = InlineForm(_FORM, MESSAGES, MESSAGES, decode_rows, RowReader.read_all)


class CreateMessageBatch(InlineBatchConsumer):
    """`POST /v1/messages/batches`."""

    async def handle(self, request: ApiRequest) -> None:
        """Make a batch; a request in it that is wrong is told of in the results."""
        body = await self.map_body()
        batch = await self.create_batch(body, _INLINE)
        await self.respond_json(msgspec.json.encode(show_batch(batch)))


class ListMessageBatches(BatchesConsumer):
    """`GET /v1/messages/batches`."""

    async def handle(self, request: ApiRequest) -> None:
        """List the team's batches, newest first."""
        wanted = decode_page(request.query)
        listing = Listing(
            team_id=self.principal.team_id,
            form=_FORM,
            limit=wanted.limit,
            after=_cursor("after_id", wanted.after_id),
            before=_cursor("before_id", wanted.before_id),
        )
        batches, has_more = await self.services.database.run(partial(page, listing))
        answer = {
            "data": [show_batch(batch) for batch in batches],
            "has_more": has_more,
            "first_id": batch_name(batches[0].id) if batches else None,
            "last_id": batch_name(batches[-1].id) if batches else None,
        }
        await self.respond_json(msgspec.json.encode(answer))


def _cursor(name: str, text: str | None) -> UUID | None:
    if text is None:
        return None
    if (batch_id := parse_batch_name(text)) is None:
        raise invalid(f"{name}: must be the id of a batch", param=name)
    return batch_id


class _OneBatch(BatchesConsumer):
    """For requests about one batch."""

    async def find(self) -> Batch:
        """Return the batch that the path names. Raises NOT_FOUND."""
        name = self.arguments["batch"]
        return await self.services.database.run(
            partial(find, parse_batch_name(name), self.principal.team_id, _FORM, name)
        )


class MessageBatch(_OneBatch):
    """`GET` and `DELETE /v1/messages/batches/{id}`."""

    methods = ("GET", "HEAD", "DELETE")

    async def handle(self, request: ApiRequest) -> None:
        """Show a batch, or delete it with its results."""
        batch = await self.find()
        answer = show_batch(batch)
        if request.method == "DELETE":
            if not has_ended(batch):
                raise TandemError(
                    ErrorCode.INVALID_REQUEST,
                    f"the batch '{batch_name(batch.id)}' has not ended; cancel it first",
                )
            await self.services.database.run(partial(delete, batch.id))
            answer = {"id": batch_name(batch.id), "type": "message_batch_deleted"}
        await self.respond_json(msgspec.json.encode(answer))


class CancelMessageBatch(_OneBatch):
    """`POST /v1/messages/batches/{id}/cancel`."""

    methods = ("POST",)

    async def handle(self, request: ApiRequest) -> None:
        """Run no more of a batch's requests; one that has ended stays as it is."""
        batch = await self.find()
        cancelled = await self.services.database.run(partial(cancel, batch.id))
        await self.respond_json(msgspec.json.encode(show_batch(cancelled)))


class MessageBatchResults(_OneBatch, ResultsConsumer):
    """`GET /v1/messages/batches/{id}/results`."""

    async def handle(self, request: ApiRequest) -> None:
        """Send one line for each request, as JSON."""
        batch = await self.find()
        if not has_ended(batch):
            raise TandemError(
                ErrorCode.INVALID_REQUEST,
                f"the batch '{batch_name(batch.id)}' has not ended: it has no results yet",
            )
        if batch.archived_at is not None:
            raise TandemError(
                ErrorCode.NOT_FOUND,
                f"the results of the batch '{batch_name(batch.id)}' are no longer kept",
            )
        await self.send_rows(batch, [(b"content-type", b"application/x-jsonl")], anthropic_line)
