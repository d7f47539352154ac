"""What consumers share whose bodies hold all requests of a batch, and whose answers all results."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar, NamedTuple
from uuid import UUID

from gateway.accounting.origin import origin_of
from gateway.batches.bodies import Buffer, mapped
from gateway.batches.creation import WINDOW, NewBatch, create
from gateway.batches.endpoints import rules_of
from gateway.batches.images import images_on
from gateway.batches.render import EndedRow
from gateway.batches.results import page
from gateway.batches.rows import Row, RowReader, Terms
from gateway.cache_salt import cache_salt
from gateway.dialects.validation import invalid
from gateway.errors import Header
from gateway.http.body import check_content_encoding, check_content_type
from gateway.http.consumer import ApiConsumer
from gateway.http.pace import Pace
from gateway.http.request import ApiRequest
from gateway.http.slow_reader import SlowReader
from gateway.http.upload import UploadConsumer
from gateway.models import Scope
from inference.errors import ErrorCode, TandemError
from jobs.models import Batch
from jobs.work.enqueue import NewWork

MAX_KEY_CHARS = 255
"""The length of an idempotency key."""

_PIECE_BYTES = 256 * 1024


class InlineForm(NamedTuple):
    """One way to send a batch with its rows.

    `path` is what the batch says that its rows are for, `endpoint` what reads them. `decode` finds
    them in a body; `read` makes work of them, and says what becomes of those that are wrong.
    """

    form: Batch.Form
    path: str
    endpoint: str
    decode: Callable[[Buffer], Iterator[Row]]
    read: Callable[[RowReader, Iterator[Row]], Iterator[NewWork]]


class BatchesConsumer(ApiConsumer):
    """What all of them share. A batch is its team's: others are told that there is none."""

    scope_needed: ClassVar[str | None] = Scope.BATCHES


class InlineBatchConsumer(BatchesConsumer, UploadConsumer):
    """For requests that make a batch of the rows in their body."""

    methods: ClassVar[tuple[str, ...]] = ("POST",)

    @property
    def max_body_bytes(self) -> int:
        """A batch may be larger than any one request."""
        return self.services.config.MAX_BATCH_BODY_BYTES

    async def map_body(self) -> Buffer:
        """Return the body. Raises INVALID_REQUEST if it does not say that it is plain JSON."""
        check_content_type(self.request.header(b"content-type"))
        check_content_encoding(self.request.header(b"content-encoding"))
        return await asyncio.to_thread(mapped, self.upload)

    async def create_batch(self, body: Buffer, kind: InlineForm) -> Batch:
        """Make a batch of the body's rows, which are checked and stored in a thread.

        A client that leaves before its batch is there has none. Raises what `create` raises, and
        what is wrong with the body.
        """
        loop = asyncio.get_running_loop()
        abandoned = threading.Event()

        def make() -> Batch:
            new = self.new_batch(body, kind.form, kind.path)
            images = images_on(loop, self.services.images)
            reader = RowReader(kind.endpoint, self._terms(new), images)
            rows = _watched(kind.decode(body), abandoned)
            return create(new, kind.read(reader, rows))

        try:
            return await self.services.batch_threads.run(make)
        except asyncio.CancelledError:
            abandoned.set()
            raise

    def new_batch(self, body: Buffer, form: Batch.Form, endpoint: str = "") -> NewBatch:
        """Return what the request says of a batch that is to be made. Raises INVALID_REQUEST."""
        request = self.request
        origin = origin_of(request)
        return NewBatch(
            id=UUID(request.id),
            form=form,
            endpoint=endpoint,
            principal=self.principal,
            created_at=datetime.now(UTC),
            client=origin.client,
            address=origin.address,
            idempotency_key=_idempotency_key(request),
            request_digest=hashlib.sha256(body).digest(),
        )

    def _terms(self, new: NewBatch) -> Terms:
        return Terms(
            batch_id=str(new.id),
            principal=self.principal,
            created_at=new.created_at,
            deadline_at=new.created_at + WINDOW,
            catalogue=self.services.directory.catalogue,
            prices=self.services.directory.prices,
            cache_salt=cache_salt(self.principal.team_id),
            rules=rules_of(self.services.config),
            headers=tuple(map(tuple, self.request.scope["headers"])),
        )


class ResultsConsumer(BatchesConsumer):
    """For requests that are answered with the results of a batch, as fast as the client reads."""

    async def send_rows(
        self,
        batch: Batch,
        headers: list[Header],
        render: Callable[[EndedRow], bytes],
        frame: tuple[bytes, bytes, bytes] = (b"", b"", b""),
    ) -> None:
        """Send every row's result between the first and the last part of `frame`, the middle one
        between each two of them.

        Should rows not be had any more, the connection is dropped, so that nobody takes what came
        for all there is.
        """
        head, between, tail = frame
        rows = await self._page(batch, 0)
        await self.start(200, [*headers, self.identity, *self.extra_headers])
        if self.request.method == "HEAD":
            await self.write(b"", more=False)
            return
        await self.write(head)
        with Pace(self.base_send, self.services.config.REQUEST_TIMEOUT_S) as pace:
            while rows:
                line = rows[-1].line
                async for piece in self._pieces(rows, render, between):
                    if not await pace.wait():
                        return
                    await self.write(piece)
                try:
                    rows = await self._page(batch, line)
                except TandemError:
                    SlowReader(self.base_send, 0).drop()
                    return
                if rows:
                    await self.write(between)
        await self.write(tail, more=False)

    async def _page(self, batch: Batch, after_line: int) -> list[EndedRow]:
        return await self.services.database.run(partial(page, batch.id, after_line))

    async def _pieces(
        self, rows: Sequence[EndedRow], render: Callable[[EndedRow], bytes], between: bytes
    ) -> AsyncIterator[bytes]:
        """Render a page, in a thread and a piece at a time: results are larger than rows."""
        left = deque(rows)
        while left:
            piece = await asyncio.to_thread(_rendered, left, render, between)
            yield piece + between if left else piece


def _rendered(rows: deque[EndedRow], render: Callable[[EndedRow], bytes], between: bytes) -> bytes:
    """Take rows away, and return their results."""
    results: list[bytes] = []
    size = 0
    while rows and size < _PIECE_BYTES:
        results.append(render(rows.popleft()))
        size += len(results[-1])
    return between.join(results)


def _watched(rows: Iterator[Row], abandoned: threading.Event) -> Iterator[Row]:
    """Pass rows on as long as somebody waits for their batch: nobody else would know of it."""
    for row in rows:
        if abandoned.is_set():
            raise TandemError(ErrorCode.CANCELLED, "the client left before its batch was made")
        yield row
        # The loop has streams to feed, and reading 100,000 rows takes long: it goes first.
        time.sleep(0)


def _idempotency_key(request: ApiRequest) -> str:
    # PostgreSQL keeps no NUL, and nobody needs one.
    key = (request.header(b"idempotency-key") or b"").decode("latin-1").replace("\0", "")
    if len(key) > MAX_KEY_CHARS:
        # Cut, it could be another request's.
        raise invalid(f"Idempotency-Key: longer than {MAX_KEY_CHARS} characters")
    return key
