"""A plain HTTP client that sees what the SDKs hide: status lines, headers and single frames."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import httpx

TIMEOUT_S = 30.0


class Frame(NamedTuple):
    """One server-sent event; a comment has the name `:`."""

    name: str
    data: dict[str, Any]


def script(**directives: Any) -> str:
    """Return a message that tells the scripted engine what to do."""
    return f"script: {json.dumps(directives)}"


ENDLESS = script(tokens=10_000, token_delay_s=0.05)
"""A script of more than eight minutes: what waits for its end fails."""


def body(model: str, content: str, **fields: Any) -> dict[str, Any]:
    """Return the body of a Messages request with one user turn."""
    messages = [{"role": "user", "content": content}]
    return {"model": model, "max_tokens": 10_000, "messages": messages} | fields


class Stream:
    """An answer that is being streamed."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()
        self._give_up_s = time.monotonic() + TIMEOUT_S

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames as they come."""
        name = ""
        for line in self._lines:
            # Pings keep the connection's own timeout from ever coming.
            assert time.monotonic() < self._give_up_s, "the stream does not end"
            if line.startswith(":"):
                yield Frame(":", {})
            elif line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield Frame(name, json.loads(line.removeprefix("data: ")))

    def wait_for(self, name: str) -> Frame:
        """Read up to the next frame of that name."""
        for frame in self:
            if frame.name == name:
                return frame
        raise AssertionError(f"the stream ended without {name}")

    def rest(self) -> list[Frame]:
        """Read to the end."""
        return list(self)


def text_of(frames: list[Frame]) -> str:
    """Join the text of a stream."""
    deltas = [frame.data for frame in frames if frame.name == "content_block_delta"]
    return "".join(delta["delta"]["text"] for delta in deltas)


def names_of(frames: list[Frame]) -> list[str]:
    """Return the frames' names, each run of equal ones once."""
    names = [frame.name for frame in frames]
    return [name for name, before in zip(names, [None, *names], strict=False) if name != before]


WHOLE_STREAM = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
]
"""What `names_of` returns for a complete answer."""


class Client:
    """Calls one gateway with one key."""

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx.Client(
            base_url=url, headers={"x-api-key": key}, timeout=TIMEOUT_S, trust_env=False
        )

    def ask(self, model: str, content: str, **fields: Any) -> httpx.Response:
        """Ask for a whole answer."""
        return self.http.post("/v1/messages", json=body(model, content, **fields))

    @contextmanager
    def stream(self, model: str, content: str, **fields: Any) -> Iterator[Stream]:
        """Ask for a stream; leaving the context closes the connection."""
        asked = body(model, content, **({"stream": True} | fields))
        with self.http.stream("POST", "/v1/messages", json=asked) as response:
            yield Stream(response)


class RawRequest:
    """A request on a bare connection, whose answer need not be read. Close it by `with`."""

    def __init__(self, port: int, key: str, asked: dict[str, Any], *, buffer: int = 0) -> None:
        """Send it. `buffer` is the size in bytes of the socket's receive buffer; 0 leaves it."""
        content = json.dumps(asked).encode()
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(
            b"POST /v1/messages HTTP/1.1\r\nhost: tandem\r\ncontent-type: application/json\r\n"
            b"x-api-key: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            % (key.encode(), len(content))
            + content
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def rest(self) -> bytes:
        """Read until the server closes the connection."""
        received = b""
        end_s = time.monotonic() + TIMEOUT_S
        while chunk := self.socket.recv(65536):
            assert time.monotonic() < end_s, "the answer does not end"
            received += chunk
        return received

    def leave(self) -> None:
        """Reset the connection, as a client does that is killed."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()
