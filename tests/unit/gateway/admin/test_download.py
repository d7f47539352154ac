"""Files that are made while they are sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest

from gateway.admin.download import download, paced


def pieces(asked: list[int]) -> Iterator[bytes]:
    for number in range(3):
        asked.append(number)
        yield b"%d" % number


async def test_pieces_are_asked_for_one_by_one() -> None:
    async def send(message: dict[str, Any]) -> None:
        """Take anything."""

    asked: list[int] = []
    taken = []
    async for piece in paced(pieces(asked), send):
        taken.append(piece)
        assert len(asked) == len(taken)
    assert taken == [b"0", b"1", b"2"]


def test_a_server_without_an_event_loop_takes_them_as_they_are() -> None:
    response = download(HttpRequest(), pieces([]), "lines.jsonl", "application/x-ndjson")
    assert response.getvalue() == b"012"
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.headers["content-disposition"] == 'attachment; filename="lines.jsonl"'
