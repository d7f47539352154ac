"""`GET /openapi.json`: the document, made once and then only compared."""

from __future__ import annotations

import asyncio
from functools import cache
from hashlib import sha256
from typing import NamedTuple

import msgspec

from gateway.http.consumer import ApiConsumer
from gateway.http.request import ApiRequest
from gateway.openapi.document import build


class _Published(NamedTuple):
    body: bytes
    etag: bytes


@cache
def _publish() -> _Published:
    body = msgspec.json.encode(build())
    return _Published(body, b'"%b"' % sha256(body).hexdigest()[:32].encode())


class OpenApi(ApiConsumer):
    """Answers with the document, or with 304 to who has it."""

    public = True

    async def handle(self, request: ApiRequest) -> None:
        """Making it takes long enough to hold streams up, so that is done in a thread."""
        published = await asyncio.to_thread(_publish)
        # Kept, but asked about each time: it changes with an upgrade.
        self.extra_headers = [(b"etag", published.etag), (b"cache-control", b"no-cache")]
        if _has(request.header(b"if-none-match"), published.etag):
            identity = (b"request-id", request.public_id.encode())
            await self.start(304, [*self.extra_headers, identity])
            await self.write(b"", more=False)
        else:
            await self.respond_json(published.body)


def _has(if_none_match: bytes | None, etag: bytes) -> bool:
    known = (tag.strip().removeprefix(b"W/") for tag in (if_none_match or b"").split(b","))
    return any(tag in (etag, b"*") for tag in known)
