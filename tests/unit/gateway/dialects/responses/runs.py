"""Runs of canonical events, and what a response's stream is read back as."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from gateway.dialects.responses.encode import ResponseEncoder, Shape
from inference.events import Event, Finished, FinishReason, Usage
from tests.openai_types import check_event

ID = "0193f5a2-1111-7aaa-8bbb-0123456789ab"
HEX = ID.replace("-", "")
USAGE = Usage(
    prompt_tokens=12, cached_tokens=8, cache_written_tokens=3, output_tokens=5, thinking_tokens=2
)
END = Finished(reason=FinishReason.END, usage=USAGE)
CUT = Finished(reason=FinishReason.LENGTH, usage=USAGE)
CALLED = Finished(reason=FinishReason.TOOL_USE, usage=USAGE)


def shape_of(*, background: bool = False, **body: Any) -> Shape:
    return Shape(
        id=ID,
        created_at_s=1000.5,
        model="smollm2",
        body={"model": "SmolLM2", "input": "hi", **body},
        background=background,
        completed_at_s=1002.5,
    )


def read_frames(stream: bytes) -> list[dict[str, Any]]:
    """Read frames as the strictest client does: by Unicode lines, with the event's name."""
    events = []
    for frame in filter(None, stream.decode().split("\n\n")):
        if frame.startswith(":"):
            continue
        name, data = frame.splitlines()
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        check_event(event)
        events.append(event)
    return events


def stream_of(
    events: Iterable[Event], shape: Shape | None = None, skip_until: int = -1
) -> list[dict[str, Any]]:
    """Return the checked events of a run; their numbers have no gap."""
    encoder = ResponseEncoder(shape or shape_of(), skip_until=skip_until)
    read = read_frames(b"".join(map(encoder.feed, events)))
    numbers = [event["sequence_number"] for event in read]
    assert numbers == list(range(skip_until + 1, encoder.sequence_number + 1))
    return read


def kinds(events: Iterable[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]
