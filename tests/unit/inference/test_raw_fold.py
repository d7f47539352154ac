"""What an upstream said, as it travels, is folded and is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from inference.engine.splice import Splice
from inference.errors import ErrorCode, TandemError
from inference.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    RawAnswer,
    RawFrame,
    Started,
    TextDelta,
    Usage,
)
from inference.fold import Answer, Parts, RawPart, fold
from inference.raw_error import RawError
from inference.request import RawRequest, TextPart
from inference.transport.frames import Frame, QueueEntry, decode_entry, decode_frames, encode
from jobs.packing import pack_answer, pack_request, unpack_answer, unpack_request
from jobs.work.prefix import prefix_of
from tests.contracts.requests import make_request
from tests.raw_messages import ERROR, MESSAGE, REQUEST, STREAM

END = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
)
REFUSED = Failed(
    code=ErrorCode.OVERLOADED,
    message="busy",
    answer=RawAnswer(body=ERROR, status=529, headers=(("retry-after", "7"),)),
)
RAW = msgspec.structs.replace(
    make_request(),
    raw=RawRequest(
        path="/v1/messages", body=REQUEST, headers=(("anthropic-beta", "\xfc"),), stream=True
    ),
)


async def fold_of(*events: Event) -> Answer:
    async def feed() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return await fold(feed())


async def test_a_raw_answer_is_kept_as_it_came() -> None:
    answer = await fold_of(Started(1), RawAnswer(body=MESSAGE), END)
    assert (answer.parts, answer.raw, answer.finished) == ((), RawPart(MESSAGE), END)
    assert answer.kept == (RawPart(MESSAGE),)
    assert unpack_answer(pack_answer(answer)) == answer


async def test_an_answer_of_parts_is_kept_in_parts() -> None:
    answer = await fold_of(Started(1), TextDelta("a"), END)
    assert (answer.kept, answer.raw) == ((TextPart("a"),), None)


def test_frames_are_kept_one_after_another() -> None:
    parts = Parts()
    for frame in STREAM:
        parts.add(RawFrame(frame))
    assert parts.kept() == [RawPart(b"".join(STREAM))]
    assert Parts().kept() == []


async def test_an_error_comes_out_in_the_upstreams_words() -> None:
    with pytest.raises(RawError) as raised:
        await fold_of(REFUSED)
    assert raised.value.code is ErrorCode.OVERLOADED
    assert raised.value.answer == REFUSED.answer
    with pytest.raises(TandemError) as plain:
        await fold_of(Failed(code=ErrorCode.TIMEOUT, message="late"))
    assert not isinstance(plain.value, RawError)


def test_requests_and_events_travel() -> None:
    entry = QueueEntry(gateway_id="g", attempt=0, request=RAW)
    assert decode_entry(encode(entry)) == entry
    assert unpack_request(pack_request(RAW)) == RAW
    said: list[Event] = [RawFrame(STREAM[0], last=True), RawAnswer(body=MESSAGE), REFUSED]
    frames = [Frame("r", 0, "e", seq, event) for seq, event in enumerate(said)]
    assert decode_frames(encode(frames)) == frames


def test_a_second_attempt_says_all_of_its_own() -> None:
    splice = Splice([RawFrame(STREAM[0])])
    for event in (RawFrame(STREAM[0]), RawAnswer(body=MESSAGE)):
        assert splice.feed(event) is event


def test_raw_requests_have_a_place_among_others() -> None:
    assert prefix_of(RAW) == prefix_of(RAW)
