"""Answers on their way through: nothing is lost, and what is to be known of them is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.backends.port import Tally
from inference.backends.raw_answers import StreamedAnswer, WholeAnswer, about_tokens
from inference.backends.upstream_health import UpstreamError
from inference.errors import ErrorCode
from inference.events import Event, Finished, FinishReason, RawAnswer, RawFrame, Started, Usage
from tests.raw_messages import ERROR_FRAME, MESSAGE, REST, START, STREAM, named, stream

MODEL = "vendor/Ours-1"
USAGE = Usage(prompt_tokens=19, cached_tokens=5, cache_written_tokens=3, output_tokens=7)
SENT = b"".join(STREAM)


def start(usage: str = '{"input_tokens":1,"output_tokens":1}') -> bytes:
    message = f'{{"model":"up","usage":{usage}}}'
    return (
        f'event: message_start\ndata: {{"type":"message_start","message":{message}}}\n\n'.encode()
    )


def delta(text: str, kind: str = "text") -> bytes:
    said = f'{{"type":"{kind}_delta","{kind}":"{text}"}}'
    return f'data: {{"type":"content_block_delta","index":0,"delta":{said}}}\n\n'.encode()


def end(usage: str, reason: str = "end_turn") -> bytes:
    last = b'data: {"type":"message_stop"}\n\n'
    said = f'{{"stop_reason":"{reason}","stop_sequence":null}}'
    return f'data: {{"type":"message_delta","delta":{said},"usage":{usage}}}\n\n'.encode() + last


def told(*pieces: bytes) -> tuple[list[Event], Tally]:
    """Read pieces to the end, and return what came of them."""
    tally = Tally()
    answer = StreamedAnswer(MODEL, tally)
    events = [event for piece in pieces for event in answer.read(piece)]
    return [*events, *answer.end()], tally


def bytes_of(events: list[Event]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, RawFrame))


def usage_of(events: list[Event]) -> Usage:
    finished = events[-1]
    assert isinstance(finished, Finished)
    return finished.usage


@given(st.lists(st.integers(min_value=0, max_value=len(SENT)), max_size=30))
def test_a_stream_passes_byte_for_byte_but_for_the_models_name(cuts: list[int]) -> None:
    places = sorted({0, len(SENT), *cuts})
    pieces = [SENT[begin:stop] for begin, stop in pairwise(places)]
    events, tally = told(*pieces)
    assert bytes_of(events) == stream(MODEL)
    assert isinstance(events[0], Started)
    assert events[0].prompt_tokens == 19
    assert sum(isinstance(event, Started) for event in events) == 1
    assert usage_of(events) == USAGE
    assert (tally.prompt_tokens, tally.cached_tokens, tally.output_tokens) == (19, 5, 7)


def test_only_whole_frames_are_passed_on() -> None:
    answer = StreamedAnswer(MODEL, Tally())
    assert list(answer.read(START[:-1])) == []
    assert not answer.begun
    _, frame = answer.read(START[-1:] + REST[0][:5])
    assert frame == RawFrame(named(START, MODEL))
    assert answer.begun


def test_the_last_frame_is_told_from_the_others() -> None:
    frames = [event for event in told(*STREAM)[0] if isinstance(event, RawFrame)]
    assert [frame.last for frame in frames] == [False] * (len(STREAM) - 1) + [True]


def test_a_models_name_on_a_line_of_its_own_is_found() -> None:
    frame = b'data: {"type":"message_start","message":\ndata:  {"model":\ndata: "up"}}\n\n'
    answer = StreamedAnswer(MODEL, Tally())
    _, passed = answer.read(frame)
    assert passed == RawFrame(frame.replace(b'"up"', b'"vendor/Ours-1"'))


@pytest.mark.parametrize(
    "frame",
    [
        b"data: {}\n\n",
        b"data: [1]\n\n",
        b"data: {\n\n",
        b"data: \xff\n\n",
        b'data: {"type":5}\n\n',
        b'data: {"type":"message_start"}\n\n',
        b'data: {"type":"message_start","message":"x"}\n\n',
        b'data: {"type":"message_start","message":{"model":"vendor/Ours-1","usage":{"input_tokens":'
        b'"9","output_tokens":-1}}}\n\n',
        b'data: {"type":"content_block_delta","delta":{"text":7}}\n\n',
        b'data: {"type":"message_delta","delta":[],"usage":1.5}\n\n',
    ],
)
def test_what_cannot_be_read_is_passed_on_all_the_same(frame: bytes) -> None:
    events, _ = told(frame, end('{"output_tokens":2}'))
    assert bytes_of(events).startswith(frame)
    assert usage_of(events).output_tokens == 2


@pytest.mark.parametrize("count", ["-1", "true", "0.5", '"many"', "[]", str(2**62), str(10**25)])
def test_a_count_that_cannot_be_is_as_if_unsaid(count: str) -> None:
    usage = f'{{"input_tokens":{count},"cache_read_input_tokens":6,"output_tokens":{count}}}'
    events, tally = told(start(usage), delta("x" * 40), end(usage, "max_tokens"))
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason is FinishReason.LENGTH
    assert finished.usage == Usage(prompt_tokens=6, cached_tokens=6, output_tokens=10)
    assert tally.usage == finished.usage
    message = f'{{"type":"message","stop_reason":"max_tokens","usage":{usage}}}'.encode()
    whole = WholeAnswer(MODEL, Tally(), counting=False)
    finished = [*whole.read(message), *whole.end()][-1]
    assert isinstance(finished, Finished)
    assert finished.reason is FinishReason.LENGTH
    about = len(message) // 4
    assert finished.usage == Usage(prompt_tokens=6, cached_tokens=6, output_tokens=about)


@pytest.mark.parametrize("count", ["-1", "true", str(2**62), str(10**25)])
def test_what_cannot_be_the_count_of_a_prompt_is_no_answer(count: str) -> None:
    answer = WholeAnswer(MODEL, Tally(), counting=True)
    with pytest.raises(UpstreamError, match="cannot be read"):
        list(answer.read(f'{{"input_tokens":{count}}}'.encode()))


ITERATIONS = (
    '"iterations":['
    '{"type":"compaction","input_tokens":100,"cache_read_input_tokens":40,'
    '"cache_creation_input_tokens":20,"output_tokens":30},'
    '{"type":"message","input_tokens":11,"output_tokens":7},'
    '{"type":"compaction","input_tokens":1,"output_tokens":-1},'
    '{"type":"advisor_message","input_tokens":500,"output_tokens":500}]'
)


def test_what_a_summary_took_of_the_conversation_counts_too() -> None:
    usage = f'{{"input_tokens":11,"output_tokens":7,{ITERATIONS}}}'
    counted = Usage(prompt_tokens=172, cached_tokens=40, cache_written_tokens=20, output_tokens=37)
    events, tally = told(start(), end(usage))
    assert usage_of(events) == tally.usage == counted
    whole = WholeAnswer(MODEL, tally, counting=False)
    message = f'{{"type":"message","usage":{usage}}}'.encode()
    assert usage_of([*whole.read(message), *whole.end()]) == tally.usage == counted


@pytest.mark.parametrize("iterations", ["null", "7", '[7, "x"]', "{}", "[{}]"])
def test_iterations_that_cannot_be_read_spoil_nothing(iterations: str) -> None:
    usage = f'{{"input_tokens":11,"output_tokens":7,"iterations":{iterations}}}'
    assert usage_of(told(start(), end(usage))[0]) == Usage(
        prompt_tokens=11, cached_tokens=0, output_tokens=7
    )


def test_an_answer_of_more_members_than_any_has_is_none() -> None:
    many = ",".join(f'"{number}":1' for number in range(2000))
    message = f'{{"type":"message",{many}}}'.encode()
    with pytest.raises(UpstreamError, match="more than 1,000 members"):
        list(WholeAnswer(MODEL, Tally(), counting=False).read(message))
    for frame in (
        b'data: {"type":"message_start","message":%b}\n\n' % message,
        b'data: {"type":"message_start",%b}\n\n' % many.encode(),
    ):
        with pytest.raises(UpstreamError, match="more than 1,000 members"):
            list(StreamedAnswer(MODEL, Tally()).read(frame))


def test_until_the_end_is_told_the_length_of_what_was_said_has_to_do() -> None:
    tally = Tally()
    answer = StreamedAnswer(MODEL, tally)
    seen = []
    for piece in (
        start(),
        delta("eight ch"),
        delta("x" * 12, "thinking"),
        delta("y" * 8, "partial_json"),
        end('{"output_tokens":3}'),
    ):
        list(answer.read(piece))
        seen.append(tally.output_tokens)
    assert seen == [1, 2, 5, 7, 3]


def test_an_upstream_that_counts_nothing_is_counted() -> None:
    events, tally = told(start("{}"), delta("x" * 40), end("null"))
    assert usage_of(events).output_tokens == tally.output_tokens == 10


def test_counts_at_the_end_are_of_all_until_then() -> None:
    later = '{"input_tokens":30,"cache_read_input_tokens":null,"output_tokens":4,'
    later += '"output_tokens_details":{"thinking_tokens":2}}'
    events, _ = told(start('{"input_tokens":1,"cache_read_input_tokens":6}'), end(later))
    assert usage_of(events) == Usage(
        prompt_tokens=36, cached_tokens=6, output_tokens=4, thinking_tokens=2
    )


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("end_turn", FinishReason.END),
        ("max_tokens", FinishReason.LENGTH),
        ("tool_use", FinishReason.TOOL_USE),
        ("stop_sequence", FinishReason.STOP_SEQUENCE),
        ("pause_turn", FinishReason.PAUSE),
        ("refusal", FinishReason.REFUSAL),
        ("unheard_of", FinishReason.END),
    ],
)
def test_why_an_answer_ended_is_noted(said: str, reason: FinishReason) -> None:
    finished = told(start(), end("{}", said))[0][-1]
    assert isinstance(finished, Finished)
    assert finished.reason is reason


def test_a_stream_that_breaks_off_has_no_end() -> None:
    with pytest.raises(UpstreamError, match="broke off") as raised:
        told(*STREAM[:-1])
    assert raised.value.code is ErrorCode.UNAVAILABLE


def test_an_error_in_a_stream_is_passed_on_before_it_ends() -> None:
    answer = StreamedAnswer(MODEL, Tally())
    list(answer.read(START))
    reading = answer.read(ERROR_FRAME)
    assert next(reading) == RawFrame(ERROR_FRAME, last=True)
    with pytest.raises(UpstreamError, match="Overloaded ü") as raised:
        next(reading)
    assert raised.value.code is ErrorCode.OVERLOADED


def test_a_whole_answer_passes_byte_for_byte_but_for_the_models_name() -> None:
    tally = Tally()
    answer = WholeAnswer(MODEL, tally, counting=False)
    events = [*answer.read(named(MESSAGE, "up")), *answer.end()]
    assert events == [
        Started(prompt_tokens=19),
        RawAnswer(body=named(MESSAGE, MODEL)),
        Finished(reason=FinishReason.PAUSE, usage=USAGE),
    ]
    assert tally.output_tokens == 7


def test_a_message_whose_usage_cannot_be_read_is_a_message() -> None:
    body = b'{"type":"message","usage":{"output_tokens":"many"}}'
    answer = WholeAnswer(MODEL, Tally(), counting=False)
    assert list(answer.read(body))[1] == RawAnswer(body=body)


def test_an_upstream_that_never_counts_is_counted() -> None:
    said = b'{"type":"message","content":[]}'
    tally = Tally()
    whole = WholeAnswer(MODEL, tally, 50, counting=False)
    whole.sent()
    assert tally.prompt_tokens == 50
    counted = usage_of([*whole.read(said), *whole.end()])
    assert (counted.prompt_tokens, counted.output_tokens) == (50, len(said) // 4)
    streamed = StreamedAnswer(MODEL, tally, 60)
    streamed.sent()
    frames = [start("{}"), delta("x" * 40), end("null")]
    events = [event for frame in frames for event in streamed.read(frame)]
    counted = usage_of([*events, *streamed.end()])
    assert (counted.prompt_tokens, counted.output_tokens) == (60, 10)


def test_files_are_no_part_of_how_long_a_prompt_is() -> None:
    assert about_tokens(b"x" * 400) == 100
    picture = b'{"data" : "' + b"A" * 4000 + b'"}'
    assert about_tokens(picture) < 10


def test_what_the_cache_was_given_counts_at_every_moment() -> None:
    tally = Tally()
    answer = StreamedAnswer(MODEL, tally)
    list(answer.read(start('{"input_tokens":1,"cache_creation_input_tokens":6}')))
    assert tally.usage == Usage(
        prompt_tokens=7, cached_tokens=0, cache_written_tokens=6, output_tokens=0
    )


def test_an_error_that_comes_as_an_answer_is_an_error() -> None:
    answer = WholeAnswer(MODEL, Tally(), counting=False)
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Busy."}}'
    with pytest.raises(UpstreamError, match="Busy") as raised:
        list(answer.read(body))
    assert raised.value.code is ErrorCode.OVERLOADED


def test_an_answer_is_whole_with_its_last_frame_unless_that_is_an_error() -> None:
    answer = StreamedAnswer(MODEL, Tally())
    list(answer.read(START))
    assert not answer.whole
    list(answer.read(end("{}")))
    assert answer.whole
    broken = StreamedAnswer(MODEL, Tally())
    with pytest.raises(UpstreamError):
        list(broken.read(START + ERROR_FRAME))
    assert not broken.whole


def test_a_count_passes_as_it_is() -> None:
    body = b'{ "input_tokens":12, "context_management":{"original_input_tokens":99} }'
    tally = Tally()
    answer = WholeAnswer(MODEL, tally, counting=True)
    assert [*answer.read(body), *answer.end()][1:] == [
        RawAnswer(body=body),
        Finished(
            reason=FinishReason.END,
            usage=Usage(prompt_tokens=12, cached_tokens=0, output_tokens=0),
        ),
    ]


@pytest.mark.parametrize("counting", [True, False])
@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"a":1', b"\xff"])
def test_what_is_no_answer_is_refused(body: bytes, counting: bool) -> None:
    answer = WholeAnswer(MODEL, Tally(), counting=counting)
    with pytest.raises(UpstreamError, match="cannot be read"):
        list(answer.read(body))
    assert not answer.begun
    with pytest.raises(UpstreamError):
        list(answer.end())
