"""Streams are cut into whole frames, and lose none of their bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.backends.sse_frames import FrameSplitter, data_of, with_data

BREAK = st.sampled_from(["\n", "\r\n"])
LINE = st.one_of(
    st.sampled_from(["event: ping", "data: {}", "data:{}", "data", ": a comment", "id: 1"]),
    st.text("abc :\u2028é", min_size=1, max_size=8),
)
FRAME = st.builds(
    lambda lines, end: "".join(f"{line}{end}" for line in [*lines, ""]).encode(),
    st.lists(LINE, min_size=1, max_size=4),
    BREAK,
)


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[start:end] for start, end in pairwise(places)]


@given(st.lists(FRAME, max_size=5), st.lists(st.integers(min_value=0), max_size=12))
def test_frames_are_the_same_whatever_pieces_they_come_in(
    frames: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(frames)
    splitter = FrameSplitter()
    found = [frame for piece in pieces_of(stream, cuts) for frame in splitter.feed(piece)]
    # A break of two bytes may be cut: then the next frame begins with the second one.
    assert b"".join(found).rstrip(b"\n") == stream.rstrip(b"\n")
    assert [frame.strip(b"\r\n") for frame in found] == [frame.strip(b"\r\n") for frame in frames]


def test_a_frame_is_given_out_as_soon_as_it_is_whole() -> None:
    splitter = FrameSplitter()
    assert splitter.feed(b"event: a\ndata: 1") == []
    assert splitter.feed(b"\n") == []
    assert splitter.feed(b"\ndata: 2\n\ndata: 3") == [b"event: a\ndata: 1\n\n", b"data: 2\n\n"]
    assert splitter.feed(b"\n\n") == [b"data: 3\n\n"]


def test_one_line_break_of_two_bytes_ends_no_frame() -> None:
    splitter = FrameSplitter()
    assert splitter.feed(b"event: a\r") == []
    assert splitter.feed(b"\ndata: 1\r\n") == []
    assert splitter.feed(b"\r\n") == [b"event: a\r\ndata: 1\r\n\r\n"]


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        (b'event: a\ndata: {"a": 1}\n\n', b'{"a": 1}'),
        (b'data:{"a":1}\r\n\r\n', b'{"a":1}'),
        (b"data:  x\n\n", b" x"),
        (b'data: {\nid: 1\ndata: "a": 1}\n\n', b'{\n"a": 1}'),
        (b"data\n\n", b""),
        (b": data: x\nevent: ping\n\n", b""),
        (b"database: x\n\n", b""),
    ],
)
def test_it_reads_what_a_frame_carries(frame: bytes, data: bytes) -> None:
    assert data_of(frame) == data
    assert with_data(frame, data) == frame


def test_other_data_stands_in_the_places_of_the_lines_before() -> None:
    frame = b'id: 1\r\ndata: {\r\nevent: a\r\ndata:"a":1}\r\n\r\n'
    assert with_data(frame, b'{\n"b":22}') == (
        b'id: 1\r\ndata: {\r\nevent: a\r\ndata:"b":22}\r\n\r\n'
    )
