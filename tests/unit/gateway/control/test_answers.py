"""What is shown of requests that travelled as they were sent."""

from __future__ import annotations

import json
import uuid

import msgspec

from gateway.control.answers import render_body, render_result
from inference.fold import KeptPart, RawPart
from jobs.models import RequestRecord
from tests.raw_messages import MESSAGE, STREAM, request

RECORD = RequestRecord(id=uuid.UUID(int=1), dialect="anthropic", model="m")
BODY = request("m", stream=True)


def test_a_body_is_shown_as_it_was_sent() -> None:
    assert render_body(BODY) == json.loads(BODY)


def test_an_upstreams_message_is_shown_as_it_came() -> None:
    assert render_result(RECORD, (RawPart(MESSAGE),)) == json.loads(MESSAGE)


def test_an_upstreams_stream_is_shown_as_one_message() -> None:
    kept = msgspec.msgpack.encode([RawPart(b"".join(STREAM))])
    shown = render_result(RECORD, msgspec.msgpack.decode(kept, type=tuple[KeptPart, ...]))
    assert shown is not None
    assert shown["content"][0]["text"] == 'üü model "@@"'
