"""From a batch's rows as they were sent to the work that engines take.

A row is checked like the same body sent in realtime, by the same code; what is wrong with it is a
`TandemError` that names the field. Rows are read one after another from an iterable, so a batch
never is in memory as a whole.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import uuid_utils

from gateway.accounting.reserve import most_micros
from gateway.batches.endpoints import Draft, Rules, find_endpoint, raw_draft
from gateway.dialects.anthropic.raw import carried_headers
from gateway.dialects.unknown import MAX_KEPT_NAMES
from gateway.http.body import decode_object
from gateway.image_source import ImageSource
from gateway.keys import Principal
from gateway.serving.models import find_model, parse_context, raw_entry
from inference.catalogue import Catalogue, ModelEntry
from inference.errors import TandemError
from inference.request import ImagePart, Lane
from jobs.packing import pack_request
from jobs.pricing import PriceList
from jobs.work.enqueue import NewWork
from jobs.work.prefix import prefix_of

LoadImages = Callable[[Sequence[ImageSource]], Future[list[ImagePart]]]
"""Begins to load one row's images; see `gateway.batches.images`."""

Reject = Callable[["Row", TandemError], NewWork]
"""Says what becomes of a row that is wrong: a row that has failed, or an error for them all."""

# Rows whose images are loaded at the same time: each may hold IMAGE_MAX_TOTAL_BYTES.
_LOADING = 4


class Row(NamedTuple):
    """One row as it was sent. `line` counts from 1; `body` is its request's JSON."""

    line: int
    custom_id: str
    body: bytes


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What all rows of a batch share: whose they are, and what they are checked against.

    `headers` are those of the request that brought the rows, as they came: some travel with rows
    which do so as they were sent.
    """

    batch_id: str
    principal: Principal
    created_at: datetime
    deadline_at: datetime
    catalogue: Catalogue
    prices: PriceList
    cache_salt: str
    rules: Rules = Rules()
    headers: tuple[tuple[bytes, bytes], ...] = ()


class _Opened(NamedTuple):
    """A row whose images are being loaded."""

    row: Row
    draft: Draft
    entry: ModelEntry
    images: Future[list[ImagePart]] | None


class RowReader:
    """Reads the rows of one batch, all for one endpoint, as `/v1/chat/completions`.

    Raises INVALID_REQUEST for an endpoint that has no batches. Everything blocks: call it in a
    thread.
    """

    def __init__(self, endpoint: str, terms: Terms, load_images: LoadImages) -> None:
        self._endpoint = find_endpoint(endpoint)
        self._terms = terms
        self._load_images = load_images

    def read(self, row: Row) -> NewWork:
        """Return the work that a row is. Raises `TandemError` for what is wrong with it."""
        return self._close(self._open(row))

    def read_all(self, rows: Iterable[Row], reject: Reject | None = None) -> Iterator[NewWork]:
        """Return the work that the rows are, in their order; images of several are loaded at once.

        What is wrong with a row goes to `reject`, by default `rejected`; what that raises ends the
        reading.
        """
        reject = reject or self.rejected
        waiting: deque[_Opened | NewWork] = deque()
        for row in rows:
            try:
                waiting.append(self._open(row))
            except TandemError as error:
                waiting.append(reject(row, error))
            while waiting and (len(waiting) > _LOADING or _is_ready(waiting[0])):
                yield self._settled(waiting.popleft(), reject)
        for opened in waiting:
            yield self._settled(opened, reject)

    def rejected(self, row: Row, error: TandemError) -> NewWork:
        """Return a row that has failed before it was ever run."""
        return self._work(
            row,
            _new_id(),
            error_code=error.code,
            error_message=_storable(error.message),
            echo=msgspec.json.encode({"param": error.param, "reason": error.reason}),
        )

    def _open(self, row: Row) -> _Opened:
        terms = self._terms
        draft = self._draft(row, decode_object(row.body))
        entry = find_model(terms.catalogue, terms.principal, draft.model)
        # A model that sees nothing gets a note instead, and nothing is fetched for it.
        sources = draft.sources if entry.vision else []
        return _Opened(row, draft, entry, self._load_images(sources) if sources else None)

    def _draft(self, row: Row, obj: dict[str, Any]) -> Draft:
        terms = self._terms
        if self._endpoint.dialect == "anthropic" and (entry := raw_entry(terms.catalogue, obj)):
            return raw_draft(obj, row.body, entry, carried_headers(terms.headers))
        return self._endpoint.draft(obj, terms.rules)

    def _settled(self, opened: _Opened | NewWork, reject: Reject) -> NewWork:
        if isinstance(opened, NewWork):
            return opened
        try:
            return self._close(opened)
        except TandemError as error:
            return reject(opened.row, error)

    def _close(self, opened: _Opened) -> NewWork:
        row, draft, entry, loading = opened
        terms = self._terms
        images = loading.result() if loading is not None else []
        work_id = _new_id()
        request = draft.build(
            parse_context(
                entry,
                terms.principal,
                request_id=work_id,
                deadline_s=terms.deadline_at.timestamp(),
                lane=Lane.BATCH,
                cache_salt=terms.cache_salt,
            ),
            images,
        )
        price = terms.prices.at(entry.id, terms.created_at)
        hold_micros = most_micros(price, entry, request, len(row.body))
        return self._work(
            row,
            work_id,
            model=entry.id,
            max_tokens=request.sampling.max_tokens,
            ignored_fields=tuple(map(_storable, draft.ignored[:MAX_KEPT_NAMES])),
            hold_micros=hold_micros,
            request=pack_request(request),
            prefix=prefix_of(request),
            echo=draft.echo,
        )

    def _work(self, row: Row, work_id: str, **more: Any) -> NewWork:
        terms = self._terms
        return NewWork(
            id=work_id,
            batch_id=terms.batch_id,
            line=row.line,
            custom_id=row.custom_id,
            team_id=terms.principal.team_id,
            key_id=terms.principal.key_id,
            dialect=self._endpoint.dialect,
            **({"model": ""} | more),
            lane=Lane.BATCH,
            created_at=terms.created_at,
            deadline_at=terms.deadline_at,
            body_bytes=len(row.body),
            body_digest=hashlib.sha256(row.body).digest(),
        )


def _is_ready(opened: _Opened | NewWork) -> bool:
    if isinstance(opened, NewWork) or opened.images is None:
        return True
    return opened.images.done()


def _storable(text: str) -> str:
    """Return a text of a caller's as PostgreSQL can keep it: it has no NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _new_id() -> str:
    return str(uuid_utils.uuid7())
