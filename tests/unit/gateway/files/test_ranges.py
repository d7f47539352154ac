"""Which bytes a `Range` header asks for."""

from __future__ import annotations

import pytest

from gateway.files.ranges import Part, UnsatisfiableError, find_part


@pytest.mark.parametrize(
    ("header", "part"),
    [
        (b"bytes=0-0", Part(0, 1)),
        (b"bytes=2-4", Part(2, 5)),
        (b"bytes=2-", Part(2, 10)),
        (b"bytes=-3", Part(7, 10)),
        (b"bytes=-30", Part(0, 10)),
        (b"bytes=5-99", Part(5, 10)),
        (b" bytes=2-4 ", Part(2, 5)),
    ],
)
def test_it_finds_the_part(header: bytes, part: Part) -> None:
    assert find_part(header, 10) == part


@pytest.mark.parametrize(
    "header",
    [None, b"", b"bytes=-", b"bytes=4-2", b"bytes=0-1,3-4", b"lines=0-1", b"bytes=a-b"],
)
def test_what_is_no_single_range_means_the_whole_file(header: bytes | None) -> None:
    assert find_part(header, 10) is None


@pytest.mark.parametrize(
    ("header", "size"), [(b"bytes=10-", 10), (b"bytes=-0", 10), (b"bytes=0-", 0), (b"bytes=-1", 0)]
)
def test_bytes_that_are_not_there_are_refused(header: bytes, size: int) -> None:
    with pytest.raises(UnsatisfiableError):
        find_part(header, size)
