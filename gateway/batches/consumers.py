"""`/v1/batches`: OpenAI's batches of files and sference's inline ones, told apart by what is sent.

A new batch is OpenAI's if its body has no `requests`. From then on its id tells: OpenAI's begins
with `batch_`, sference's is a bare UUID. A list has both, each where its clients look for it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import msgspec

from gateway.batches.bodies import Buffer, decode
from gateway.batches.endpoints import CHAT, INLINE
from gateway.batches.inline import (
    BatchesConsumer,
    InlineBatchConsumer,
    InlineForm,
    ResultsConsumer,
)
from gateway.batches.openai.api import OpenAIBatches
from gateway.batches.render import sference_row
from gateway.batches.sference.show import (
    parse_batch_name,
    results_url,
    show_batch,
    status_of,
)
from gateway.batches.sference.wire import decode_rows, read_strictly
from gateway.batches.store import Listing, find, page
from gateway.errors import SHARED, Envelope
from gateway.http.body import decode_object
from gateway.http.request import ApiRequest
from inference.errors import ErrorCode, TandemError
from jobs.batches import cancel
from jobs.models import Batch

_FORM = Batch.Form.SFERENCE
_INLINE = InlineForm(_FORM, CHAT, INLINE, decode_rows, read_strictly)
# sference's clients do not page through theirs.
_LISTED = 100


class _Form(msgspec.Struct):
    """As much of a body as tells whose it is."""

    requests: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_form = msgspec.json.Decoder(_Form)


class CreateBatch(InlineBatchConsumer):
    """`POST /v1/batches`."""

    envelope: ClassVar[Envelope] = SHARED

    async def handle(self, request: ApiRequest) -> None:
        """Make a batch of a file, or of the requests in the body."""
        body = await self.map_body()
        form = await self.services.batch_threads.run(partial(decode, _form, body))
        if form.requests is not msgspec.UNSET:
            batch = await self.create_batch(body, _INLINE)
            content_type = (b"content-type", b"application/json")
            made = msgspec.json.encode(show_batch(batch))
            await self.respond(201, made, [content_type, self.identity])
            return
        answer = await OpenAIBatches(self.services, self.principal).create(
            self.new_batch(body, Batch.Form.OPENAI), self._decoded(body)
        )
        await self.respond_json(msgspec.json.encode(answer))

    def _decoded(self, body: Buffer) -> dict[str, Any]:
        # Without requests in it, it is no larger than any other body.
        if len(body) > self.services.config.MAX_BODY_BYTES:
            raise TandemError(ErrorCode.TOO_LARGE, "the request body is too large")
        return decode_object(bytes(body))


class ListBatches(BatchesConsumer):
    """`GET /v1/batches`."""

    envelope: ClassVar[Envelope] = SHARED

    async def handle(self, request: ApiRequest) -> None:
        """List OpenAI's batches, a page of them, and the newest of sference's."""
        answer = await OpenAIBatches(self.services, self.principal).page(request.query)
        listing = Listing(team_id=self.principal.team_id, form=_FORM, limit=_LISTED)
        inline, _ = await self.services.database.run(partial(page, listing))
        answer["items"] = [show_batch(batch) for batch in inline]
        await self.respond_json(msgspec.json.encode(answer))


class _OneBatch(BatchesConsumer):
    """For requests about one batch."""

    envelope: ClassVar[Envelope] = SHARED

    @property
    def name(self) -> str:
        """The id in the path."""
        return self.arguments["batch"]

    @property
    def is_inline(self) -> bool:
        """Whether the id is one of sference's."""
        return parse_batch_name(self.name) is not None

    async def find(self) -> Batch:
        """Return sference's batch that the path names. Raises NOT_FOUND."""
        batch_id = parse_batch_name(self.name)
        return await self.services.database.run(
            partial(find, batch_id, self.principal.team_id, _FORM, self.name[:100])
        )


class OneBatch(_OneBatch):
    """`GET /v1/batches/{id}`."""

    async def handle(self, request: ApiRequest) -> None:
        """Show a batch."""
        if self.is_inline:
            answer = show_batch(await self.find())
        else:
            answer = await OpenAIBatches(self.services, self.principal).retrieve(self.name)
        await self.respond_json(msgspec.json.encode(answer))


class CancelBatch(_OneBatch):
    """`POST /v1/batches/{id}/cancel`."""

    methods = ("POST",)

    async def handle(self, request: ApiRequest) -> None:
        """Run no more of a batch's requests."""
        if self.is_inline:
            batch = await self.find()
            answer = show_batch(await self.services.database.run(partial(cancel, batch.id)))
        else:
            answer = await OpenAIBatches(self.services, self.principal).cancel(self.name)
        await self.respond_json(msgspec.json.encode(answer))


class BatchResults(_OneBatch, ResultsConsumer):
    """`GET /v1/batches/{id}/results`: sference's."""

    async def handle(self, request: ApiRequest) -> None:
        """Send one object with all results in it; until the batch has ended there are none."""
        batch = await self.find()
        url = results_url(batch)
        head = msgspec.json.encode(
            {
                "batch_id": str(batch.id),
                "status": status_of(batch),
                "output_url": url,
                "completed_at": batch.ended_at,
                "results": None,
            }
        )
        if url is None:
            await self.respond_json(head)
            return
        frame = (head.removesuffix(b"null}") + b"[", b",", b"]}")
        await self.send_rows(batch, [(b"content-type", b"application/json")], sference_row, frame)


class BatchResultLines(_OneBatch, ResultsConsumer):
    """`GET /v1/batches/{id}/results.jsonl`: sference's."""

    async def handle(self, request: ApiRequest) -> None:
        """Send one line for each request, as JSON."""
        batch = await self.find()
        if batch.ended_at is None:
            raise TandemError(
                ErrorCode.INVALID_REQUEST, f"the batch '{batch.id}' has no results yet"
            )
        if batch.archived_at is not None:
            raise TandemError(
                ErrorCode.NOT_FOUND, f"the results of the batch '{batch.id}' are no longer kept"
            )
        await self.send_rows(
            batch,
            [(b"content-type", b"application/x-ndjson")],
            lambda row: sference_row(row) + b"\n",
        )
