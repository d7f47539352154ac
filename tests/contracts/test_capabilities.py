"""Tools, thinking, caching figures and counting: what every backend owes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from inference.errors import ErrorCode, TandemError
from inference.events import (
    Failed,
    Finished,
    FinishReason,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from inference.fold import fold
from inference.request import (
    CacheMark,
    GenerationRequest,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)
from tests.conftest import Eventually
from tests.contracts.conftest import Subject
from tests.contracts.requests import collect, make_request, say

pytestmark = pytest.mark.asyncio(loop_scope="session")

WEATHER = Tool(
    name="get_weather",
    description="The weather in a city.",
    schema={
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "unit": {"type": "string", "enum": ["C", "F"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
)
TIME = Tool(name="get_time", description="The time now.", schema={"type": "object"})
FORCED = ToolChoice(mode=ToolMode.NAMED, name="get_weather")
RULES = " ".join(f"Rule {number}: be kind to the number {number}." for number in range(40))
HISTORY = (
    say(Role.SYSTEM, "You are kind."),
    say(Role.USER, "What is the weather in Rome?"),
    Message(
        role=Role.ASSISTANT,
        parts=(
            ThinkingPart("I have to look."),
            TextPart("Let me look."),
            ToolCallPart(id="1", name="get_weather", arguments='{"city":"Rome","unit":"C"}'),
            ToolCallPart(id="2", name="get_time", arguments="{}"),
        ),
    ),
    Message(
        role=Role.USER,
        parts=(
            ToolResultPart(call_id="1", parts=(TextPart("sunny"), TextPart("18 C"))),
            ToolResultPart(call_id="2", parts=(TextPart("no clock"),), is_error=True),
            TextPart("So?"),
        ),
    ),
)


def asked(*messages: str | Message, max_tokens: int = 96, **fields: Any) -> GenerationRequest:
    request = make_request(*messages, max_tokens=max_tokens)
    return msgspec.structs.replace(request, **fields)


async def test_it_calls_the_tool_that_it_must_call(subject: Subject) -> None:
    request = asked(subject.calling, tools=(WEATHER, TIME), tool_choice=FORCED)

    events = await collect(subject.backend, request)

    started, call, *pieces, finished = events
    assert isinstance(started, Started)
    assert isinstance(call, ToolCallStarted)
    assert call.name == "get_weather"
    arguments = [piece.arguments for piece in pieces if isinstance(piece, ToolCallDelta)]
    assert len(arguments) == len(pieces) > 1
    assert json.loads("".join(arguments)).keys() == {"city", "unit"}
    assert isinstance(finished, Finished)
    assert finished.reason is FinishReason.TOOL_USE


async def test_it_folds_calls_to_what_was_streamed(subject: Subject) -> None:
    request = asked(subject.calling, tools=(WEATHER,), tool_choice=FORCED)

    (part,) = (await fold(subject.backend.generate(request))).parts
    events = await collect(subject.backend, request)

    assert isinstance(part, ToolCallPart)
    assert part.arguments == "".join(
        event.arguments for event in events if isinstance(event, ToolCallDelta)
    )


async def test_it_makes_a_single_call_where_more_are_not_wanted(subject: Subject) -> None:
    choice = ToolChoice(mode=ToolMode.ANY, parallel=False)

    events = await collect(
        subject.backend, asked(subject.calling, tools=(WEATHER, TIME), tool_choice=choice)
    )

    assert sum(isinstance(event, ToolCallStarted) for event in events) == 1
    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.TOOL_USE


async def test_it_cuts_a_call_at_max_tokens_and_leaves_an_object(subject: Subject) -> None:
    answer = await fold(
        subject.backend.generate(
            asked(subject.calling, max_tokens=16, tools=(WEATHER,), tool_choice=FORCED)
        )
    )

    assert all(
        isinstance(json.loads(part.arguments), dict)
        for part in answer.parts
        if isinstance(part, ToolCallPart)
    )
    if subject.entry.backend == "vllm":
        assert answer.finished.reason is FinishReason.LENGTH


async def test_it_calls_nothing_when_it_must_not(subject: Subject) -> None:
    choice = ToolChoice(mode=ToolMode.NONE)

    events = await collect(
        subject.backend, asked(subject.story, max_tokens=8, tools=(WEATHER,), tool_choice=choice)
    )

    assert all(isinstance(event, TextDelta) for event in events[1:-1])
    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.LENGTH


async def test_it_takes_thinking_calls_and_results_of_earlier_turns(subject: Subject) -> None:
    events = await collect(subject.backend, asked(*HISTORY, max_tokens=8, tools=(WEATHER, TIME)))

    assert isinstance(events[-1], Finished)


@pytest.mark.parametrize(
    "request_",
    [
        asked("Hello."),
        asked(say(Role.SYSTEM, "Be kind."), "Hello.", tools=(WEATHER, TIME)),
        asked("Hello.", tools=(WEATHER,), tool_choice=ToolChoice(mode=ToolMode.NONE)),
        asked(*HISTORY, tools=(WEATHER,)),
        asked("Hello.", thinking=True, thinking_budget_tokens=8),
    ],
    ids=["text", "tools", "no tool", "history", "thinking"],
)
async def test_it_counts_as_many_tokens_as_a_run_reports(
    counting: Subject, request_: GenerationRequest
) -> None:
    request = msgspec.structs.replace(
        request_, sampling=msgspec.structs.replace(request_.sampling, max_tokens=1)
    )

    started, *_ = await collect(counting.backend, request)

    assert isinstance(started, Started)
    assert await counting.backend.count(request) == started.prompt_tokens


async def test_it_counts_more_tokens_than_it_could_run(counting: Subject) -> None:
    limit = counting.entry.context_tokens

    assert await counting.backend.count(asked("apple " * 4 * limit)) > 4 * limit
    assert await counting.backend.count(asked("apple " * 1000 * limit)) > 100 * limit


async def test_it_counts_without_a_free_slot(counting: Subject, eventually: Eventually) -> None:
    backend = counting.backend
    request = asked(counting.story, max_tokens=400)
    runs = [asyncio.create_task(collect(backend, request)) for _ in range(backend.capacity)]
    await eventually(lambda: backend.stats().running == backend.capacity)

    assert await backend.count(request) > 0
    assert backend.stats().running == backend.capacity

    for run in runs:
        run.cancel()
    await asyncio.wait(runs)
    await eventually(lambda: backend.stats().running == 0)


async def test_it_only_fills_the_cache_when_no_token_is_wanted(counting: Subject) -> None:
    events = await collect(counting.backend, asked(counting.story, max_tokens=0))

    started, finished = events
    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    assert finished.reason is FinishReason.LENGTH
    assert finished.usage.output_tokens == 0
    assert finished.usage.prompt_tokens == started.prompt_tokens


@pytest.mark.parametrize("mark", [(-1, 0), (0, 0), (1, 0), (2, 0), (3, 0)])
async def test_it_says_how_much_before_the_mark_was_written(
    counting: Subject, mark: tuple[int, int]
) -> None:
    conversation = (
        say(Role.SYSTEM, RULES),
        say(Role.USER, RULES),
        say(Role.ASSISTANT, RULES),
        say(Role.USER, "What is rule 3?"),
    )
    message, part = mark
    request = asked(
        *conversation,
        max_tokens=2,
        tools=(WEATHER,),
        cache_salt=f"mark {message}",
        cache_mark=CacheMark(message=message, part=part),
    )

    *_, finished = await collect(counting.backend, request)

    assert isinstance(finished, Finished)
    usage = finished.usage
    share = usage.cache_written_tokens / usage.prompt_tokens
    # The tools are short, and each of the rules' turns is about a third.
    low, high = [(0.02, 0.25), (0.25, 0.6), (0.5, 0.8), (0.8, 1), (0.9, 1)][message + 1]
    assert low < share <= high
    assert usage.cached_tokens + usage.cache_written_tokens <= usage.prompt_tokens


async def test_it_writes_nothing_where_nothing_is_marked(subject: Subject) -> None:
    *_, finished = await collect(subject.backend, asked(RULES, max_tokens=2, cache_salt="none"))

    assert isinstance(finished, Finished)
    assert finished.usage.cache_written_tokens == 0


def _endless_tool() -> Tool:
    schema: dict[str, Any] = {}
    for _ in range(3000):
        schema = {"items": schema}
    return Tool(name="deep", schema=schema)


async def test_it_refuses_a_tool_whose_schema_never_ends(subject: Subject) -> None:
    (failed,) = await collect(
        subject.backend, asked("Hello.", max_tokens=1, tools=(_endless_tool(),))
    )

    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.INVALID_REQUEST
    assert "tool 'deep': the schema is nested too deeply" in failed.message


async def test_it_does_not_count_a_tool_whose_schema_never_ends(counting: Subject) -> None:
    request = asked("Hello.", max_tokens=1, tools=(_endless_tool(),))

    with pytest.raises(TandemError, match="tool 'deep': the schema is nested too deeply"):
        await counting.backend.count(request)
