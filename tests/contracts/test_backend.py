"""What every backend owes: one suite, run against each of them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from inference.backends.port import Tally
from inference.engine.canary import run_canary
from inference.errors import ErrorCode
from inference.events import Failed, Finished, FinishReason, Started, TextDelta
from inference.fold import fold
from inference.request import Role
from tests.conftest import Eventually
from tests.contracts.conftest import Subject
from tests.contracts.requests import collect, make_request, say, text_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_it_starts_then_streams_then_ends_once(subject: Subject) -> None:
    events = await collect(subject.backend, make_request(subject.story))

    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert len(events) > 2
    assert all(isinstance(event, TextDelta) and event.text for event in events[1:-1])


async def test_it_folds_to_the_streamed_text(subject: Subject) -> None:
    request = make_request(subject.story)

    answer = await fold(subject.backend.generate(request))

    assert answer.text == text_of(await collect(subject.backend, request))
    assert answer.text


async def test_it_counts_every_token(subject: Subject) -> None:
    started, *_, finished = await collect(
        subject.backend, make_request(subject.story, max_tokens=7)
    )

    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    assert started.prompt_tokens > 0
    assert finished.usage.prompt_tokens > 0
    if subject.counts:
        assert finished.usage.prompt_tokens == started.prompt_tokens
    assert 0 <= finished.usage.cached_tokens <= finished.usage.prompt_tokens
    assert finished.usage.output_tokens == 7


async def test_a_tally_is_right_at_every_moment(subject: Subject) -> None:
    tally = Tally()
    seen = 0
    async with aclosing(
        subject.backend.generate(make_request(subject.story, max_tokens=7), tally)
    ) as events:
        async for event in events:
            if isinstance(event, Started):
                assert tally.prompt_tokens == event.prompt_tokens
            elif isinstance(event, TextDelta):
                assert seen < tally.output_tokens <= 7
                seen = tally.output_tokens
            else:
                assert isinstance(event, Finished)
                assert tally.usage.output_tokens == event.usage.output_tokens == 7
                assert tally.usage.cached_tokens == event.usage.cached_tokens


async def test_it_ends_at_max_tokens(subject: Subject) -> None:
    events = await collect(subject.backend, make_request(subject.story, max_tokens=5))

    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.LENGTH
    assert events[-1].stop_sequence is None


async def test_it_ends_before_a_stop_sequence(subject: Subject) -> None:
    whole = text_of(await collect(subject.backend, make_request(subject.story, max_tokens=24)))
    # Cut through the middle of words, so that it spans tokens.
    stop = whole[20:28]

    events = await collect(
        subject.backend, make_request(subject.story, max_tokens=24, stop=(stop,))
    )

    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.STOP_SEQUENCE
    assert events[-1].stop_sequence == stop
    assert text_of(events) == whole[: whole.index(stop)]


async def test_it_withholds_nothing_when_no_stop_sequence_matches(subject: Subject) -> None:
    whole = text_of(await collect(subject.backend, make_request(subject.story)))
    # Begins like the end of the answer, and never becomes whole.
    stop = f"{whole[-5:]}\x00"

    events = await collect(subject.backend, make_request(subject.story, stop=(stop,)))

    assert text_of(events) == whole
    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.LENGTH


async def test_it_takes_many_stop_sequences(subject: Subject) -> None:
    whole = text_of(await collect(subject.backend, make_request(subject.story)))
    stop = (*(f"never-{number}" for number in range(11)), whole[10:15])

    events = await collect(subject.backend, make_request(subject.story, stop=stop))

    assert isinstance(events[-1], Finished)
    assert events[-1].stop_sequence == stop[-1]


async def test_it_refuses_a_prompt_that_is_too_long(subject: Subject) -> None:
    limit = subject.entry.context_tokens

    events = await collect(subject.backend, make_request("apple " * 4 * limit))

    assert len(events) == 1
    assert isinstance(events[0], Failed)
    assert events[0].code is ErrorCode.PROMPT_TOO_LONG
    words = events[0].message.split()
    assert events[0].message == f"prompt is too long: {words[4]} tokens > {limit} maximum"
    assert int(words[4]) > 4 * limit


async def test_it_refuses_a_prompt_that_is_hopelessly_long(subject: Subject) -> None:
    limit = subject.entry.context_tokens

    events = await collect(subject.backend, make_request("apple " * 1000 * limit))

    assert len(events) == 1
    assert isinstance(events[0], Failed)
    assert events[0].message.startswith("prompt is too long: ")
    assert events[0].message.endswith(f" tokens > {limit} maximum")


async def test_it_refuses_an_answer_that_does_not_fit(subject: Subject) -> None:
    limit = subject.entry.context_tokens
    *_, finished = await collect(subject.backend, make_request(subject.story))
    assert isinstance(finished, Finished)
    prompt_tokens = finished.usage.prompt_tokens

    events = await collect(subject.backend, make_request(subject.story, max_tokens=limit))

    assert events == [
        Failed(
            code=ErrorCode.INVALID_REQUEST,
            message="input length and `max_tokens` exceed context limit: "
            f"{prompt_tokens} + {limit} > {limit}, "
            "decrease input length or `max_tokens` and try again",
        )
    ]


async def test_it_aborts_when_the_generator_is_closed(
    subject: Subject, eventually: Eventually
) -> None:
    async with aclosing(
        subject.backend.generate(make_request(subject.story, max_tokens=400))
    ) as events:
        while not isinstance(await anext(events), TextDelta):
            pass
        assert subject.backend.stats().running == 1

    await eventually(lambda: subject.backend.stats().running == 0)
    assert subject.backend.stats().waiting == 0


async def test_it_aborts_when_the_task_is_cancelled(
    subject: Subject, eventually: Eventually
) -> None:
    task = asyncio.create_task(
        collect(subject.backend, make_request(subject.story, max_tokens=400))
    )
    await eventually(lambda: subject.backend.stats().running == 1)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await eventually(lambda: subject.backend.stats().running == 0)
    assert subject.backend.stats().waiting == 0


async def test_it_runs_as_many_as_its_capacity_at_once(
    subject: Subject, eventually: Eventually
) -> None:
    count = subject.backend.capacity
    runs = [
        asyncio.create_task(
            collect(subject.backend, make_request(f"{subject.story}", max_tokens=100))
        )
        for _ in range(count)
    ]

    await eventually(lambda: subject.backend.stats().running == count)
    endings = [events[-1] for events in await asyncio.gather(*runs)]

    assert all(isinstance(ending, Finished) for ending in endings)


async def test_it_shows_progress_while_it_works(subject: Subject) -> None:
    before = subject.backend.stats().progress

    await collect(subject.backend, make_request(subject.story, max_tokens=4))

    assert subject.backend.stats().progress >= before + 4


async def test_it_is_well_while_it_serves(subject: Subject) -> None:
    await collect(subject.backend, make_request(subject.story))

    assert subject.backend.failure() is None


async def test_it_takes_system_messages_and_several_turns(subject: Subject) -> None:
    events = await collect(
        subject.backend,
        make_request(
            say(Role.SYSTEM, "You are a poet.", "You answer in one line."),
            say(Role.USER, "Who are you?"),
            say(Role.ASSISTANT, "A poet."),
            subject.story,
        ),
    )

    assert isinstance(events[-1], Finished)
    assert text_of(events)


async def test_it_answers_the_same_at_temperature_0(subject: Subject) -> None:
    request = make_request(subject.story, max_tokens=32)

    assert text_of(await collect(subject.backend, request)) == text_of(
        await collect(subject.backend, request)
    )


async def test_it_never_cuts_a_character_in_two(subject: Subject) -> None:
    events = await collect(
        subject.backend, make_request("Repeat this: 🚲🎉🌊 你好 🚲🎉🌊 你好", max_tokens=48)
    )

    assert isinstance(events[-1], Finished)
    assert "�" not in text_of(events)


async def test_it_passes_its_canary(subject: Subject) -> None:
    assert await run_canary(subject.backend, subject.entry) is None
