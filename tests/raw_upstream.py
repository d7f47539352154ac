"""An upstream that keeps every byte it is sent, and answers with the bytes that a test has set.

It runs in threads of this process, so that tests of a backend and of whole processes can use it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

EVENT_STREAM = "text/event-stream; charset=utf-8"
JSON = "application/json"


class Asked(NamedTuple):
    """A request as it came: `headers` in their order, names in lower case."""

    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> list[str]:
        """Return every value of a header."""
        return [value for key, value in self.headers if key == name]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer: its body goes out piece by piece; `cut`: the connection ends before it does."""

    pieces: Iterable[bytes]
    kind: str = JSON
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


class RawUpstream:
    """`url` is where it listens, `asked` what came; `replies` are used up one by one.

    `connections` are the addresses that requests came from, `left` that somebody hung up before
    an answer's end.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[Asked] = []
        self.replies: deque[Reply] = deque()
        self.connections: set[tuple[str, int]] = set()
        self.left = threading.Event()

    def reply(self, *pieces: bytes, **fields: object) -> None:
        """Set the next answer."""
        self.replies.append(Reply(pieces=pieces, **fields))  # type: ignore[arg-type]


@contextmanager
def raw_upstream() -> Iterator[RawUpstream]:
    """Run an upstream until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = [(name.lower(), value) for name, value in self.headers.items()]
            upstream.asked.append(Asked(self.path, headers, body))
            upstream.connections.add(self.client_address)
            try:
                self._answer(upstream.replies.popleft())
            except ConnectionError:
                upstream.left.set()
                self.close_connection = True

        def _answer(self, reply: Reply) -> None:
            self.send_response(reply.status)
            self.send_header("content-type", reply.kind)
            self.send_header("transfer-encoding", "chunked")
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in reply.pieces:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.flush()
            if reply.cut:
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    upstream = RawUpstream(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield upstream
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
