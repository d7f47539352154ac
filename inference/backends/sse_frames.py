"""Server-sent events as an upstream writes them: whole frames, and what they carry.

Pure. A frame keeps its bytes, its line breaks and the empty line that ends it included; put
together, the frames are the stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Atomic: the two bytes of one line break are not two of them.
_EMPTY_LINE = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
# The longest end of a frame that can be cut in two.
_OVERLAP = 3


class FrameSplitter:
    """Cuts a stream into frames, whatever pieces it arrives in."""

    def __init__(self) -> None:
        self._pending = b""
        self._searched = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the frames that are whole with this piece."""
        text = self._pending + chunk
        frames = []
        start, search = 0, self._searched
        while found := _EMPTY_LINE.search(text, search):
            frames.append(text[start : found.end()])
            start = search = found.end()
        self._pending = text[start:]
        self._searched = max(0, len(self._pending) - _OVERLAP)
        return frames


def data_of(frame: bytes) -> bytes:
    """Return what a frame carries: its data, several lines of it joined by line breaks."""
    return b"\n".join(_value(line) for line in frame.splitlines() if _is_data(line))


def with_data(frame: bytes, data: bytes) -> bytes:
    """Return the frame with other data, of as many lines."""
    lines = iter(data.split(b"\n"))
    return b"".join(_with_data(frame, lines))


def _with_data(frame: bytes, lines: Iterator[bytes]) -> Iterator[bytes]:
    for line in frame.splitlines(keepends=True):
        bare = line.rstrip(b"\r\n")
        if _is_data(bare):
            value = _value(bare)
            head = bare[: len(bare) - len(value)]
            yield head + next(lines) + line[len(bare) :]
        else:
            yield line


def _is_data(line: bytes) -> bool:
    return line == b"data" or line.startswith(b"data:")


def _value(line: bytes) -> bytes:
    return line[len(b"data:") :].removeprefix(b" ")
