"""Server-sent events as the pages read them."""

from __future__ import annotations

import pytest

from tests.scripts import Scripts

STREAM = (
    'event: message_start\r\ndata: {"a": "Grüße"}\r\n\r\n'
    ": a comment\n\n"
    "event: ping\ndata: {}\n\n"
    "data: one\ndata: two\n\n"
)
EVENTS = [
    {"event": "message_start", "data": '{"a": "Grüße"}'},
    {"event": "ping", "data": "{}"},
    {"event": "message", "data": "one\ntwo"},
]

_FEED = """
const parser = new m.EventParser();
return pieces.flatMap((piece) => parser.feed(piece));
"""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_the_same_however_the_text_is_cut(scripts: Scripts, size: int) -> None:
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert scripts.run("sse.js", _FEED, pieces=pieces) == EVENTS


def test_an_event_that_is_broken_off_is_none(scripts: Scripts) -> None:
    assert scripts.run("sse.js", _FEED, pieces=["data: {}\n\n", "data: {"]) == [
        {"event": "message", "data": "{}"}
    ]


def test_a_response_s_events_come_as_json_across_split_characters(scripts: Scripts) -> None:
    program = """
    const bytes = new TextEncoder().encode(text);
    const body = new ReadableStream({
      start(controller) {
        for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
        controller.close();
      },
    });
    const found = [];
    for await (const event of m.events({ body })) found.push(event);
    return found;
    """
    assert scripts.run("sse.js", program, text='data: {"a": "世界"}\n\n') == [{"a": "世界"}]
