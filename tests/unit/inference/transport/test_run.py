"""The rules of one run: order, retries, duplicates and losses."""

import asyncio

import pytest

from inference.errors import ErrorCode
from inference.events import Event, Failed, Finished, FinishReason, Started, TextDelta, Usage
from inference.request import GenerationRequest, Message, Role, Sampling, TextPart
from inference.transport.frames import Accepted, Frame
from inference.transport.run import MAX_ATTEMPTS, Run, Verdict

FINISHED = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
)
ENGINE_FAILED = Failed(code=ErrorCode.ENGINE_FAILED, message="engine failed")


def make_run(closed: list[Run] | None = None) -> Run:
    request = GenerationRequest(
        id="r1",
        model="m",
        messages=(Message(role=Role.USER, parts=(TextPart("hi"),)),),
        sampling=Sampling(max_tokens=1),
        deadline_s=0,
    )
    return Run(request, "queue", on_close=(closed if closed is not None else []).append)


def frame(seq: int, body: Accepted | Event, attempt: int = 0, engine: str = "e1") -> Frame:
    return Frame("r1", attempt, engine, seq, body)


def accepted(attempt: int = 0, engine: str = "e1") -> Frame:
    return frame(0, Accepted(engine), attempt, engine)


async def test_it_yields_events_in_order_to_the_end() -> None:
    run = make_run()
    for each in (
        accepted(),
        frame(1, Started(3)),
        frame(2, TextDelta("a")),
        frame(3, TextDelta("b")),
    ):
        assert run.receive(each) is Verdict.NOTHING
    assert run.receive(frame(4, FINISHED)) is Verdict.ENDED
    assert [event async for event in run] == [Started(3), TextDelta("a"), TextDelta("b"), FINISHED]


async def test_it_hands_out_everything_that_has_come_at_once() -> None:
    run = make_run()
    run.receive(accepted())
    run.receive(frame(1, Started(3)))
    run.receive(frame(2, TextDelta("a")))
    assert await run.next() == [Started(3), TextDelta("a")]


def test_it_ignores_a_frame_that_was_written_twice() -> None:
    run = make_run()
    run.receive(accepted())
    run.receive(frame(1, TextDelta("a")))
    assert run.receive(frame(1, TextDelta("a"))) is Verdict.NOTHING
    assert run.receive(frame(2, FINISHED)) is Verdict.ENDED


async def test_it_never_leaves_a_hole_in_the_text() -> None:
    run = make_run()
    run.receive(accepted())
    run.receive(frame(1, TextDelta("a")))
    assert run.receive(frame(3, TextDelta("c"))) is Verdict.CANCEL_SENDER
    events = [event async for event in run]
    assert events[0] == TextDelta("a")
    assert isinstance(events[-1], Failed)
    assert events[-1].code is ErrorCode.ENGINE_LOST


def test_it_starts_again_when_a_frame_is_lost_before_any_text() -> None:
    run = make_run()
    run.receive(accepted())
    assert run.receive(frame(2, TextDelta("b"))) is Verdict.RETRY


def test_it_tries_another_engine_when_one_fails_before_any_text() -> None:
    run = make_run()
    run.receive(accepted())
    run.receive(frame(1, Started(3)))
    assert run.receive(frame(2, ENGINE_FAILED)) is Verdict.RETRY


def test_it_ends_when_an_engine_fails_after_text() -> None:
    run = make_run()
    run.receive(accepted())
    run.receive(frame(1, TextDelta("a")))
    assert run.receive(frame(2, ENGINE_FAILED)) is Verdict.ENDED
    assert not run.next_attempt()


def test_it_does_not_retry_what_the_caller_got_wrong() -> None:
    run = make_run()
    run.receive(accepted())
    invalid = Failed(code=ErrorCode.PROMPT_TOO_LONG, message="prompt is too long")
    assert run.receive(frame(1, invalid)) is Verdict.ENDED


async def test_it_tells_the_start_once_over_two_attempts() -> None:
    run = make_run()
    run.receive(accepted())
    run.receive(frame(1, Started(3)))
    assert run.next_attempt()
    run.receive(accepted(attempt=1, engine="e2"))
    run.receive(frame(1, Started(3), attempt=1, engine="e2"))
    run.receive(frame(2, FINISHED, attempt=1, engine="e2"))
    assert [event async for event in run] == [Started(3), FINISHED]


def test_it_ignores_an_earlier_attempt_and_stops_its_engine() -> None:
    run = make_run()
    assert run.next_attempt()
    assert run.receive(accepted(attempt=0)) is Verdict.CANCEL_SENDER
    assert run.receive(frame(1, TextDelta("old"), attempt=0)) is Verdict.NOTHING
    assert not run.text_sent


def test_it_stops_a_second_engine_that_took_the_same_attempt() -> None:
    run = make_run()
    run.receive(accepted(engine="e1"))
    assert run.receive(accepted(engine="e2")) is Verdict.CANCEL_SENDER
    assert run.engine_id == "e1"


def test_it_waits_on_when_an_engine_could_not_confirm_what_it_took() -> None:
    run = make_run()
    sorry = Failed(code=ErrorCode.ENGINE_LOST, message="not confirmed")
    assert run.receive(frame(1, sorry)) is Verdict.NOTHING
    assert run.engine_id is None


def test_it_gives_up_after_a_few_engines() -> None:
    run = make_run()
    attempts = 1
    while run.next_attempt():
        attempts += 1
    assert attempts == MAX_ATTEMPTS


@pytest.mark.parametrize("ended", [True, False])
def test_closing_cancels_only_what_has_not_ended(ended: bool) -> None:
    closed: list[Run] = []
    run = make_run(closed)
    run.receive(accepted())
    if ended:
        run.receive(frame(1, FINISHED))
    run.close()
    run.close()
    assert len(closed) == (0 if ended else 1)


def test_giving_up_is_a_failure_that_stops_the_engine() -> None:
    closed: list[Run] = []
    run = make_run(closed)
    run.receive(accepted())
    run.give_up(ENGINE_FAILED)
    run.give_up(ENGINE_FAILED)
    run.close()
    assert closed == [run]
    assert run.end == ENGINE_FAILED


@pytest.mark.parametrize("body", [TextDelta("a"), FINISHED, ENGINE_FAILED])
async def test_it_tells_when_an_answer_has_begun_or_there_is_none(body: Event) -> None:
    run = make_run()
    waiting = asyncio.create_task(run.settled())
    await asyncio.sleep(0)
    run.receive(accepted())
    run.receive(frame(1, Started(3)))
    await asyncio.sleep(0)
    assert not waiting.done()
    if run.receive(frame(2, body)) is Verdict.RETRY:
        run.fail(ErrorCode.ENGINE_LOST, "no other")
    await waiting
    await run.settled()
    assert (await run.next())[0] == Started(3)
