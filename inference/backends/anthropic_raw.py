"""Messages that go to an upstream of their own API as their callers sent them.

Nothing is decoded and encoded anew on either way: what an upstream has signed stays valid, and
what nobody here has heard of arrives. An operator's edits are the exception, and of the answer the
model's name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from inference.backends.port import Tally
from inference.backends.raw_answers import StreamedAnswer, WholeAnswer, about_tokens
from inference.backends.raw_edits import Edits, edited
from inference.backends.upstream_faults import answered, fault
from inference.backends.upstream_health import UpstreamError
from inference.backends.upstream_http import Reply, UpstreamHttp
from inference.backends.upstream_limits import is_stream
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode
from inference.events import RawAnswer
from inference.request import RawRequest
from inference.upstreams import UpstreamEntry, UpstreamOptions

_VERSION = ("anthropic-version", "2023-06-01")
_EVENT_STREAM = "text/event-stream"
# What an error's headers mean to the caller, by their names there and here.
_PASSED_ON = {
    "retry-after": "retry-after",
    "x-should-retry": "x-should-retry",
    "request-id": "tandem-upstream-request-id",
}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class RawCall(NamedTuple):
    """One request as it goes upstream."""

    path: str
    body: bytes
    headers: list[tuple[str, str]]
    stream: bool


class RawMessages:
    """Sends one model's raw requests; `inference.backends.anthropic_upstream` sends the others."""

    def __init__(
        self, entry: ModelEntry, upstream: UpstreamEntry, options: UpstreamOptions, key: str
    ) -> None:
        self._model = entry.id
        self._key = key
        self._edits = Edits(
            model=entry.upstream_model or entry.id,
            system=options.system,
            parameters=options.parameters,
        )
        self._http = UpstreamHttp(upstream)

    def call(self, raw: RawRequest) -> RawCall:
        """Return what is to be sent: the request with the operator's edits and key."""
        return RawCall(
            path=raw.path,
            body=edited(raw.body, self._edits, counting=raw.counts),
            headers=self._headers(raw),
            stream=_streams(raw),
        )

    def answer(self, raw: RawRequest, tally: Tally) -> WholeAnswer | StreamedAnswer:
        """Return a reader of the answer."""
        about = about_tokens(raw.body)
        if _streams(raw):
            return StreamedAnswer(self._model, tally, about)
        return WholeAnswer(self._model, tally, about, counting=raw.counts)

    @asynccontextmanager
    async def stream(self, call: RawCall) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send a request, and return the answer as it comes: as one piece, if it is no stream.

        Raises `UpstreamError`, with the upstream's own words where it has said any.
        """
        async with self._http.post(
            call.path, call.body, call.headers, streams=call.stream
        ) as reply:
            if reply.status != HTTPStatus.OK:
                raise self._refusal(reply, await reply.whole())
            if call.stream != is_stream(reply.headers):
                raise _unlike(reply)
            yield reply.pieces() if call.stream else _whole(reply)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _headers(self, raw: RawRequest) -> list[tuple[str, str]]:
        names = {name for name, _ in raw.headers}
        carried = raw.headers if _VERSION[0] in names else (*raw.headers, _VERSION)
        ours = {
            "accept": _EVENT_STREAM if _streams(raw) else "application/json",
            # Compressed, the events of a stream would wait for each other.
            "accept-encoding": "identity",
            "content-type": "application/json",
        }
        if self._key:
            ours["x-api-key"] = self._key
        return [*carried, *ours.items()]

    def _refusal(self, reply: Reply, body: bytes) -> UpstreamError:
        """Return the error of an upstream that has answered with one."""
        status = reply.status
        said = _error_in(body)
        error = fault(answered(status, said, reply.headers))
        # Whatever else it is, it must not lead the caller elsewhere.
        if status >= HTTPStatus.BAD_REQUEST:
            told = body if said is not None else _told(status, error.message)
            error.answer = RawAnswer(
                body=told,
                status=status,
                headers=tuple(_passed_on(reply)),
            )
        return error


def _passed_on(reply: Reply) -> Iterator[tuple[str, str]]:
    """Yield the headers that go with an error. What no header should hold is left out."""
    for theirs, ours in _PASSED_ON.items():
        value = reply.headers.get(theirs, "")
        if value and value.isascii() and value.isprintable():
            yield ours, value


async def _whole(reply: Reply) -> AsyncIterator[bytes]:
    yield await reply.whole()


def _streams(raw: RawRequest) -> bool:
    return raw.stream and not raw.counts


def _unlike(reply: Reply) -> UpstreamError:
    """Return the error of another kind of answer than was asked for.

    No sign that the upstream is down: a body that says twice whether it wants a stream is enough.
    """
    kind = reply.headers.get("content-type", "nothing")
    text = f"the upstream's answer cannot be read: it is {kind:.100}"
    return UpstreamError(ErrorCode.UNAVAILABLE, text)


def _error_in(body: bytes) -> object:
    """Return an error's body, decoded; None if it is not in the API's form."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    match said:
        case {"error": {"message": str()}}:
            return said
    return None


def _told(status: int, message: str) -> bytes:
    """Put into the API's form what something between here and the upstream has answered."""
    error = {"type": _ERROR_TYPES.get(status, "api_error"), "message": message}
    return msgspec.json.encode({"type": "error", "error": error})
