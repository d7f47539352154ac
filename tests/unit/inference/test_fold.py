"""A whole answer is a fold of its events."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from inference.errors import ErrorCode, TandemError
from inference.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Started,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from inference.fold import Answer, fold
from inference.request import TextPart, ThinkingPart, ToolCallPart

END = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
)


async def fold_of(*events: Event) -> Answer:
    async def feed() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return await fold(feed())


async def test_neighbouring_deltas_of_one_kind_are_one_part() -> None:
    answer = await fold_of(
        Started(1),
        ThinkingDelta("a"),
        ThinkingDelta("b"),
        TextDelta("c"),
        TextDelta("d"),
        ThinkingDelta("e"),
        TextDelta("f"),
        END,
    )
    assert answer.parts == (
        ThinkingPart("ab"),
        TextPart("cd"),
        ThinkingPart("e"),
        TextPart("f"),
    )
    assert (answer.text, answer.finished) == ("cdf", END)


async def test_neighbouring_calls_stay_apart() -> None:
    answer = await fold_of(
        TextDelta("a"),
        ToolCallStarted(id="1", name="f"),
        ToolCallDelta('{"x":'),
        ToolCallDelta("1}"),
        ToolCallStarted(id="2", name="f"),
        ToolCallDelta("{}"),
        TextDelta("b"),
        END,
    )
    assert answer.parts == (
        TextPart("a"),
        ToolCallPart(id="1", name="f", arguments='{"x":1}'),
        ToolCallPart(id="2", name="f", arguments="{}"),
        TextPart("b"),
    )
    assert answer.text == "ab"


async def test_a_call_without_arguments_has_an_empty_object() -> None:
    answer = await fold_of(ToolCallStarted(id="1", name="f"), END)
    assert answer.parts == (ToolCallPart(id="1", name="f", arguments="{}"),)


async def test_an_answer_may_have_no_parts() -> None:
    assert (await fold_of(Started(1), END)).parts == ()


async def test_a_failed_run_is_its_error() -> None:
    with pytest.raises(TandemError, match="died") as caught:
        await fold_of(TextDelta("a"), Failed(code=ErrorCode.ENGINE_LOST, message="died"))
    assert caught.value.code is ErrorCode.ENGINE_LOST


async def test_a_run_that_stops_without_an_end_is_lost() -> None:
    with pytest.raises(TandemError) as caught:
        await fold_of(Started(1), TextDelta("a"))
    assert caught.value.code is ErrorCode.ENGINE_LOST
