"""An upstream for tests, in this process: both dialects over one scripted engine.

It answers what its engine plays, or what a test has put into `replies`.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from gateway.dialects.anthropic.encode import MessageStream
from gateway.dialects.anthropic.parse import to_request as message_request
from gateway.dialects.anthropic.wire import decode_count, decode_messages
from gateway.dialects.chat.encode import ChunkStream, Shape
from gateway.dialects.chat.parse import to_request as chat_request
from gateway.dialects.chat.wire import decode_chat
from gateway.dialects.context import ParseContext
from gateway.errors import ANTHROPIC, OPENAI, Envelope
from gateway.serving.choices import Chosen
from inference.backends.scripted import ScriptedBackend
from inference.catalogue import ModelEntry
from inference.errors import TandemError
from inference.events import Event, Failed
from inference.request import GenerationRequest
from inference.upstreams import UpstreamEntry

_STREAM = "text/event-stream"
_JSON = "application/json"


class Received(NamedTuple):
    """A request as it came; header names are in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a request is answered instead of its answer.

    `cut`: the connection ends before the body does. `hangs`: it goes on for ever.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] = ()
    cut: bool = False
    hangs: bool = False


def error_reply(status: int, error: object, **headers: str) -> Reply:
    """Return an error as both dialects write it."""
    body = json.dumps({"type": "error", "error": error}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, headers={"content-type": _JSON} | named, chunks=(body,))


def stream_reply(*frames: dict[str, Any], named: bool = False, **reply: Any) -> Reply:
    """Return a stream of these events, with their names as Anthropic's API has them if `named`."""
    heads = [f"event: {frame.get('type')}\n" if named else "" for frame in frames]
    chunks = [
        f"{head}data: {json.dumps(frame)}\n\n".encode()
        for head, frame in zip(heads, frames, strict=True)
    ]
    return Reply(headers={"content-type": _STREAM}, chunks=tuple(chunks), **reply)


class UpstreamServer:
    """Use it by `async with`. `url` is where it listens, and `received` what it was sent."""

    def __init__(self, entry: ModelEntry) -> None:
        self.url = ""
        self.received: list[Received] = []
        self.replies: deque[Reply] = deque()
        self.backend = ScriptedBackend(entry)
        self._entry = entry
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=2**27)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def upstream(self, path: str = "", **fields: Any) -> UpstreamEntry:
        """Return the catalogue's entry of it; `path` is that of the API."""
        defaults: dict[str, Any] = {
            "name": "upstream-under-test",
            "base_url": f"{self.url}{path}",
            "key": "",
            "connect_timeout_s": 5,
            "read_timeout_s": 30,
            "retries": 0,
            "requests_per_minute": None,
        }
        return UpstreamEntry(**(defaults | fields))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            received = await _read(reader)
            self.received.append(received)
            answering = asyncio.ensure_future(self._answer(received, writer))
            # Nothing more is sent on this connection: whatever comes is its end.
            leaving = asyncio.ensure_future(reader.read(1))
            try:
                await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
            finally:
                answering.cancel()
                leaving.cancel()
                await asyncio.gather(answering, leaving, return_exceptions=True)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        reply = self.replies.popleft() if self.replies else None
        if reply is None:
            await self._play(received, writer)
            return
        _begin(writer, reply.status, reply.headers)
        for chunk in reply.chunks:
            await _send(writer, chunk)
        if reply.hangs:
            await asyncio.Event().wait()
        if not reply.cut:
            await _send(writer, b"")

    async def _play(self, received: Received, writer: asyncio.StreamWriter) -> None:
        envelope: Envelope = OPENAI if received.path.endswith("/completions") else ANTHROPIC
        try:
            if received.path.endswith("/count_tokens"):
                body, _ = decode_count(received.body)
                tokens = await self.backend.count(message_request(body, self._context(), ()))
                _begin(writer, 200, {"content-type": _JSON})
                await _send(writer, json.dumps({"input_tokens": tokens}).encode())
            else:
                request, encode = self._read(received)
                await self._stream(request, encode, writer)
        except TandemError as error:
            _begin(writer, envelope.status(error), {"content-type": _JSON})
            await _send(writer, envelope.body(error, "req_of_the_upstream"))
        await _send(writer, b"")

    def _read(self, received: Received) -> tuple[GenerationRequest, Callable[[Event], bytes]]:
        if received.path.endswith("/completions"):
            chat, _ = decode_chat(received.body)
            shape = Shape(completion_id="chatcmpl-1", model=self._entry.id, created_s=0, usage=True)
            chunks = ChunkStream(shape)
            request = chat_request(chat, self._context(), ())
            return request, lambda event: chunks.feed(Chosen(0, event))
        message, _ = decode_messages(received.body)
        stream = MessageStream("msg_1", self._entry.id, "req_1")
        return message_request(message, self._context(), ()), stream.feed

    async def _stream(
        self,
        request: GenerationRequest,
        encode: Callable[[Event], bytes],
        writer: asyncio.StreamWriter,
    ) -> None:
        has_begun = False
        async with aclosing(self.backend.generate(request)) as events:
            async for event in events:
                if not has_begun:
                    if isinstance(event, Failed):
                        raise TandemError(event.code, event.message)
                    has_begun = True
                    _begin(writer, 200, {"content-type": _STREAM})
                if frame := encode(event):
                    await _send(writer, frame)

    def _context(self) -> ParseContext:
        return ParseContext(
            request_id=str(uuid.uuid4()),
            model=self._entry.id,
            deadline_s=time.time() + 60,
            context_tokens=self._entry.context_tokens,
            reasoning=self._entry.reasoning,
        )


@contextmanager
def upstream_server(entry: ModelEntry) -> Iterator[UpstreamServer]:
    """Run one in a thread of its own, for tests of whole processes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = UpstreamServer(entry)
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(first.split()[1], headers, json.loads(body or b"{}"))


def _begin(writer: asyncio.StreamWriter, status: int, headers: dict[str, str]) -> None:
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    writer.write(
        f"HTTP/1.1 {status} Whatever\r\n{''.join(lines)}connection: close\r\n"
        "transfer-encoding: chunked\r\n\r\n".encode()
    )


async def _send(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    """Send a piece of the body; an empty one ends it."""
    writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
    await writer.drain()
