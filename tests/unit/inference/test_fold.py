"""The fold of a stream into one answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, FinishReason, Started, TextDelta, Usage
from inference.fold import Answer, fold

FINISHED = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=3, cached_tokens=1, output_tokens=2)
)


async def _stream(*events: Event) -> AsyncIterator[Event]:
    for event in events:
        yield event


async def test_it_joins_the_deltas() -> None:
    events = _stream(Started(3), TextDelta("to"), TextDelta("gether"), FINISHED)

    assert await fold(events) == Answer(text="together", finished=FINISHED)


async def test_it_folds_an_answer_without_text() -> None:
    assert await fold(_stream(Started(3), FINISHED)) == Answer(text="", finished=FINISHED)


async def test_it_raises_what_failed() -> None:
    failed = Failed(code=ErrorCode.OVERLOADED, message="come back later")

    with pytest.raises(TandemError, match="come back later") as caught:
        await fold(_stream(Started(3), TextDelta("half"), failed))

    assert caught.value.code is ErrorCode.OVERLOADED


async def test_it_raises_when_the_final_event_is_missing() -> None:
    with pytest.raises(TandemError) as caught:
        await fold(_stream(Started(3), TextDelta("half")))

    assert caught.value.code is ErrorCode.ENGINE_LOST
