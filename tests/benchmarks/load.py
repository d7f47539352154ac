"""The load client: a process of its own that sends requests and times every frame.

Reads a `Load` from standard input and writes a `Taken` to standard output, both as MessagePack.
While it measures it only keeps what arrives and when; streams are read and checked afterwards, so
that a client in Python takes as little as it can from the servers beside it.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import httptools
import msgspec
import uvloop

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = "/v1/messages"
CHAT = "/v1/chat/completions"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Send every body once to Messages or Chat, `concurrency` at a time, on kept connections.

    Each connection sends its first one `spacing_s` after the one before it has. With `at_s` each
    body is sent so many seconds after the start instead, on a connection of its own, however many
    are not answered yet.
    """

    port: int
    headers: dict[str, str]
    bodies: list[dict[str, Any]]
    concurrency: int = 1
    spacing_s: float = 0
    at_s: list[float] = []
    path: str = MESSAGES


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One request as its client saw it. Times are in seconds after it was sent.

    That was `sent_s` after the load began, and at `clock_s` of the machine's monotonic clock, with
    which times of other processes compare. `frames_s` has one time for each frame with text.
    `error` is empty if the stream was whole: it came to `message_stop`, or to Chat's `[DONE]`. Of
    `prompt_tokens` the cache had `cached_tokens`, which only Messages tells.
    """

    frames_s: list[float]
    end_s: float
    text: str
    stop_reason: str | None
    output_tokens: int
    error: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sent_s: float = 0
    clock_s: float = 0


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What a load has shown. It began at `began_at_s`, in seconds since 1970.

    `client_cpu_s` is what the client itself used meanwhile, `process_cpu_s` what it used in all.
    """

    samples: list[Sample]
    began_at_s: float
    wall_s: float
    client_cpu_s: float
    process_cpu_s: float


class _Raw:
    """One answer as it came: its pieces, each with the time at which it arrived."""

    def __init__(self) -> None:
        self.sent_s = time.monotonic()
        self.status = 0
        self.pieces: list[tuple[float, bytes]] = []
        self.error = ""


class _Connection(asyncio.Protocol):
    """One kept connection, one request at a time on it."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._raw = _Raw()
        self._now_s = 0.0
        self._done: asyncio.Future[None] | None = None
        self.usable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._now_s = time.monotonic()
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        self._raw.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._raw.pieces.append((self._now_s, body))

    def on_message_complete(self) -> None:
        self.usable = self._parser.should_keep_alive()
        self._parser = httptools.HttpResponseParser(self)
        self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._done is not None and not self._done.done():
            self._raw.error = "the connection was closed before the answer was whole"
        self._finish()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def ask(self, request: bytes) -> _Raw:
        """Send one request and return its answer, whole or not."""
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._raw = _Raw()
        self._transport.write(request)
        await self._done
        return self._raw

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


def take(load: Load) -> Taken:
    """Run a load in a process of its own. Raises `CalledProcessError` if the client failed."""
    # By a file: of pipes, some answers came short, though the client had ended well.
    with tempfile.TemporaryFile() as answer:
        subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.load"],
            cwd=ROOT,
            input=msgspec.msgpack.encode(load),
            stdout=answer,
            check=True,
        )
        answer.seek(0)
        said = answer.read()
    try:
        return msgspec.msgpack.decode(said, type=Taken)
    except msgspec.DecodeError as error:
        raise RuntimeError(f"the client's {len(said)} bytes are no answer: {error}") from error


def main() -> None:
    """Run the load on standard input."""
    load = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Load)
    requests = [_request(load, body) for body in load.bodies]
    # A collection would look like a gap in every stream.
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sent = runner.run(_send(load, requests))
    taken = Taken(
        samples=[_read(answer, load.path, sent.start_s) for answer in sent.answers],
        began_at_s=sent.began_at_s,
        wall_s=sent.wall_s,
        client_cpu_s=sent.cpu_s,
        process_cpu_s=time.process_time(),
    )
    sys.stdout.buffer.write(msgspec.msgpack.encode(taken))
    # Left to the interpreter's end, a failure to write would leave the exit status as it is.
    sys.stdout.buffer.flush()


def _request(load: Load, body: dict[str, Any]) -> bytes:
    payload = msgspec.json.encode(body)
    lines = [
        f"POST {load.path} HTTP/1.1",
        f"host: 127.0.0.1:{load.port}",
        "content-type: application/json",
        f"content-length: {len(payload)}",
        *(f"{name}: {value}" for name, value in load.headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + payload


class _Sent(NamedTuple):
    """What came of all requests; seconds are from the first byte sent to the last received."""

    answers: list[_Raw]
    start_s: float
    began_at_s: float
    wall_s: float
    cpu_s: float


async def _send(load: Load, requests: list[bytes]) -> _Sent:
    kept = 0 if load.at_s else load.concurrency
    connections = [await _connect(load.port) for _ in range(kept)]
    left = iter(requests)
    start_s, start_cpu_s, began_at_s = time.monotonic(), time.process_time(), time.time()
    if load.at_s:
        due = zip(requests, load.at_s, strict=True)
        sending = [_ask_at(load.port, request, start_s + at_s) for request, at_s in due]
    else:
        sending = [
            _work(load.port, connection, left, number * load.spacing_s)
            for number, connection in enumerate(connections)
        ]
    answers = await asyncio.gather(*sending)
    return _Sent(
        answers=[answer for some in answers for answer in some],
        start_s=start_s,
        began_at_s=began_at_s,
        wall_s=time.monotonic() - start_s,
        cpu_s=time.process_time() - start_cpu_s,
    )


async def _ask_at(port: int, request: bytes, due_s: float) -> list[_Raw]:
    """Send one request when it is due, by the clock of `time.monotonic`."""
    await asyncio.sleep(due_s - time.monotonic())
    connection = await _connect(port)
    answer = await connection.ask(request)
    connection.close()
    return [answer]


async def _work(
    port: int, connection: _Connection, left: Iterator[bytes], wait_s: float
) -> list[_Raw]:
    await asyncio.sleep(wait_s)
    answers = []
    for request in left:
        if not connection.usable:
            connection.close()
            connection = await _connect(port)
        answers.append(await connection.ask(request))
    connection.close()
    return answers


async def _connect(port: int) -> _Connection:
    """Connect. A failure here is the rig's, not the server's, and ends the client."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(_Connection, "127.0.0.1", port)
    return connection


def _read(raw: _Raw, path: str, start_s: float) -> Sample:
    """Read one answer's frames, each with the time at which its last byte arrived."""
    frames_s: list[float] = []
    text: list[str] = []
    stop_reason, usage, error = None, {}, raw.error
    whole, last = False, "message_stop" if path == MESSAGES else _DONE["type"]
    for arrived_s, event in _events(raw.pieces) if raw.status == 200 else ():
        match event:
            case {"type": "content_block_delta", "delta": {"text": str(piece)}} | {
                "choices": [{"delta": {"content": str(piece)}}]
            } if piece:
                frames_s.append(arrived_s - raw.sent_s)
                text.append(piece)
            case {"type": "message_delta", "delta": delta, "usage": told}:
                stop_reason, usage = delta["stop_reason"], told
            case {"choices": [{"finish_reason": str(reason)}]}:
                stop_reason = reason
            case {"usage": {"prompt_tokens": prompt, "completion_tokens": output}}:
                usage = {"input_tokens": prompt, "output_tokens": output}
            case {"type": str(kind)} if kind == last:
                whole = True
            case {"error": told}:
                error = str(told)
    if not whole and not error:
        body = b"".join(piece for _, piece in raw.pieces)
        error = f"status {raw.status}, not a whole stream: {body[:200]!r}"
    cached_tokens = usage.get("cache_read_input_tokens", 0)
    written_tokens = usage.get("cache_creation_input_tokens", 0)
    return Sample(
        frames_s=frames_s,
        end_s=(raw.pieces[-1][0] if raw.pieces else raw.sent_s) - raw.sent_s,
        text="".join(text),
        stop_reason=stop_reason,
        output_tokens=usage.get("output_tokens", 0),
        error=error,
        clock_s=raw.sent_s,
        prompt_tokens=usage.get("input_tokens", 0) + cached_tokens + written_tokens,
        cached_tokens=cached_tokens,
        sent_s=raw.sent_s - start_s,
    )


# Chat's last frame is no JSON.
_DONE: dict[str, Any] = {"type": "[DONE]"}


def _events(pieces: list[tuple[float, bytes]]) -> Iterator[tuple[float, dict[str, Any]]]:
    rest = b""
    for arrived_s, piece in pieces:
        *frames, rest = (rest + piece).split(b"\n\n")
        for frame in frames:
            _, found, data = frame.partition(b"data: ")
            if found:
                yield arrived_s, _DONE if data == b"[DONE]" else msgspec.json.decode(data)


if __name__ == "__main__":
    main()
