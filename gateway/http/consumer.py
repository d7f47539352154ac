"""The base of every API consumer: reads the body, runs one task, answers errors in shape."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, ClassVar

from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer

from gateway.accounting.headers import limit_headers
from gateway.accounting.refusals import LimitError
from gateway.errors import ANTHROPIC, ERRORS, Envelope, Header, error_headers
from gateway.http.request import ApiRequest
from gateway.keys import Principal, without_keys
from gateway.services import Services
from inference.errors import ErrorCode, TandemError

logger = logging.getLogger(__name__)

_LOGGED_CHARS = 1000


class ApiConsumer(AsyncConsumer):  # type: ignore[misc]
    """Answers one HTTP request.

    The answer is made in a task of its own while this consumer keeps reading, so that a client
    that disconnects cancels the task at once (Channels' own HTTP consumer sees it only after).
    Every consumer needs a key unless it says that it is `public`, and a key with `scope_needed` if
    it names one; no `methods` means any. `extra_headers` go with the answer, an error too.
    `envelope` is how the caller's dialect says errors and names requests.
    """

    methods: ClassVar[tuple[str, ...]] = ("GET", "HEAD")
    public: ClassVar[bool] = False
    scope_needed: ClassVar[str | None] = None
    envelope: ClassVar[Envelope] = ANTHROPIC
    request: ApiRequest
    principal: Principal

    def __init__(self, services: Services, **arguments: str) -> None:
        self.services = services
        self.arguments = arguments
        self._body: list[bytes] = []
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self.responding = False
        self.extra_headers: list[Header] = []

    @property
    def max_body_bytes(self) -> int:
        """The size of the largest body that is taken."""
        return self.services.config.MAX_BODY_BYTES

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Hand a message to its handler, without the database housekeeping of the base class."""
        if message["type"] == "http.request":
            self._receive(message)
        elif message["type"] == "http.disconnect":
            await self._leave()
            raise StopConsumer

    def _receive(self, message: dict[str, Any]) -> None:
        chunk = message.get("body", b"")
        self._size += len(chunk)
        if self._size <= self.max_body_bytes:
            self._body.append(chunk)
        else:
            # Count on, but keep nothing.
            self._body.clear()
        if not message.get("more_body", False):
            self.request = ApiRequest(self.scope, b"".join(self._body))
            self._body.clear()
            self._begin()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._answer())

    async def _leave(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _answer(self) -> None:
        try:
            self._check()
            if not self.public:
                self.principal = await self._authenticate()
            await self.handle(self.request)
        except TandemError as error:
            if isinstance(error, LimitError):
                self.extra_headers += limit_headers(error.refusal)
            await self.respond_error(error)
        except Exception:
            logger.exception("Request %s failed", self.request.public_id)
            await self.respond_error(
                TandemError(ErrorCode.INTERNAL, "an internal error occurred; it has been logged")
            )

    def _check(self) -> None:
        if self.methods and self.request.method not in self.methods:
            allowed = ", ".join(self.methods)
            raise TandemError(
                ErrorCode.METHOD_NOT_ALLOWED,
                f"{self.request.method} is not allowed on {self.scope['path']}; use {allowed}",
            )
        if self._size > self.max_body_bytes:
            raise TandemError(
                ErrorCode.TOO_LARGE,
                f"the request body has {self._size} bytes, more than the maximum of "
                f"{self.max_body_bytes}",
            )

    async def _authenticate(self) -> Principal:
        """Return who is calling. Raises AUTHENTICATION or PERMISSION."""
        key = self.request.api_key
        if not key:
            raise TandemError(
                ErrorCode.AUTHENTICATION,
                "no API key: send it as `x-api-key` or as `Authorization: Bearer`",
            )
        principal = await self.services.directory.keys.resolve(key)
        if principal is None:
            raise TandemError(ErrorCode.AUTHENTICATION, "invalid x-api-key")
        if principal.expires_at_s is not None and principal.expires_at_s <= time.time():
            raise TandemError(ErrorCode.AUTHENTICATION, "this API key has expired")
        if self.scope_needed is not None and self.scope_needed not in principal.scopes:
            raise TandemError(
                ErrorCode.PERMISSION,
                f"this API key lacks the scope '{self.scope_needed}', which {self.scope['path']} "
                "needs",
            )
        return principal

    async def handle(self, request: ApiRequest) -> None:
        """Answer the request. A `TandemError` raised before the first byte becomes the answer."""
        raise NotImplementedError

    async def respond(self, status: int, body: bytes, headers: list[Header]) -> None:
        """Send a whole answer."""
        length = (b"content-length", b"%d" % len(body))
        await self.start(status, [*headers, *self.extra_headers, length])
        await self.write(b"" if self.request.method == "HEAD" else body, more=False)

    async def respond_json(self, body: bytes) -> None:
        """Send a whole JSON answer with status 200."""
        content_type = (b"content-type", b"application/json")
        await self.respond(200, body, [content_type, self.identity])

    @property
    def identity(self) -> Header:
        """What names the request in the answer's headers."""
        return self.envelope.identity(self.request.public_id)

    async def respond_error(self, error: TandemError) -> None:
        """Send an error: as the answer, or at the end of an answer that has begun."""
        row = ERRORS[error.code]
        logger.log(
            row.log_level,
            # Callers choose paths and parts of messages: no line of theirs, and no endless one.
            "%s %s %.200r: %.500r",
            self.request.public_id,
            row.status,
            without_keys(self.scope["path"]),
            without_keys(error.message[:_LOGGED_CHARS]),
        )
        if self.responding:
            await self.write(self.encode_failure(error), more=False)
            return
        headers = [*error_headers(error), self.identity]
        if error.code is ErrorCode.METHOD_NOT_ALLOWED:
            headers.append((b"allow", ", ".join(self.methods).encode()))
        body = self.envelope.body(error, self.request.public_id)
        await self.respond(self.envelope.status(error), body, headers)

    def encode_failure(self, error: TandemError) -> bytes:
        """Return what ends an answer that has begun; nothing, unless the dialect has a frame."""
        return b""

    async def start(self, status: int, headers: list[Header]) -> None:
        """Send the status line and the headers."""
        self.responding = True
        await self.base_send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, body: bytes, *, more: bool = True) -> None:
        """Send a piece of the body; the last one has `more` False."""
        await self.base_send({"type": "http.response.body", "body": body, "more_body": more})


class NotFound(ApiConsumer):
    """Answers paths that do not exist."""

    public = True
    methods = ()

    async def handle(self, request: ApiRequest) -> None:
        """Say which path was not found."""
        raise TandemError(
            ErrorCode.NOT_FOUND, f"there is nothing at {request.method} {self.scope['path']}"
        )
