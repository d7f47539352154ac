"""Rounds of generating and running tools, around the scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from inference.backends.port import Tally
from inference.backends.scripted import ScriptedBackend
from inference.errors import ErrorCode
from inference.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    ServerToolCall,
    ServerToolResult,
    Started,
    ToolCallDelta,
    ToolCallStarted,
)
from inference.mcp.calls import MOST_AT_ONCE
from inference.mcp.entry import McpServerEntry
from inference.mcp.loop import MOST_LEFT_OVER, ToolLoop
from inference.mcp.pool import McpPool
from inference.mcp.results import Outcome
from inference.request import (
    GenerationRequest,
    Message,
    Role,
    ServerToolCallPart,
    ServerToolResultPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)
from tests.conftest import Eventually
from tests.contracts.requests import collect, make_entry, make_request, text_of
from tests.unit.inference.mcp.servers import StubPool, StubSession, callers_request, stdio_server

NOW = {"name": "now", "arguments": ['{"zone":', '"UTC"}']}
MINE = {"name": "mine", "arguments": ['{"a":', "1}"]}
OWN_TOOL = Tool(name="mine", schema={"type": "object"})


class _Recorded(ScriptedBackend):
    """Keeps every request that it was given."""

    requests: list[GenerationRequest]

    def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        self.requests.append(request)
        return super().generate(request, tally)


def _clock(name: str = "clock", text: str = "noon", *, is_error: bool = False) -> StubSession:
    return StubSession(name, {"now": Outcome(text, is_error)})


def _loop(*sessions: StubSession, limit: int = 10, always: bool = True, **script: Any) -> ToolLoop:
    entry = make_entry(
        offer_mcp_tools=always,
        engine_options=script,
        mcp_servers=tuple(
            McpServerEntry(name=each.name, transport="stdio", command=("x",)) for each in sessions
        ),
        tool_recursion_limit=limit,
    )
    backend = _Recorded(entry)
    backend.requests = []
    return ToolLoop(StubPool(*sessions), entry, backend)


def _requests(loop: ToolLoop) -> list[GenerationRequest]:
    backend = loop._backend
    assert isinstance(backend, _Recorded)
    return backend.requests


def _once(**script: Any) -> dict[str, Any]:
    """Return a script that calls the clock, and answers with what it said."""
    return {"text": "", "tool_calls": [NOW], "echo_results": True} | script


def _without_deltas(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events if type(event).__name__ != "TextDelta"]


def _end(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished), events[-1]
    return events[-1]


async def test_a_tool_is_run_and_the_model_answers_with_what_it_said() -> None:
    clock = _clock()
    loop = _loop(clock, **_once(text="Let me see."))
    events = await collect(loop, callers_request("What time is it?"))

    assert _without_deltas(events) == ["Started", "ServerToolCall", "ServerToolResult", "Finished"]
    call = next(event for event in events if isinstance(event, ServerToolCall))
    assert (call.server, call.name, call.arguments) == ("clock", "now", '{"zone":"UTC"}')
    assert ServerToolResult(call_id=call.id, text="noon") in events
    assert text_of(events) == "Let me see.noon"
    assert _end(events).reason is FinishReason.END
    assert clock.calls == [("now", {"zone": "UTC"})]


async def test_the_second_round_sees_the_call_and_its_result_in_turns_of_their_own() -> None:
    loop = _loop(_clock(is_error=True), **_once(text="Let me see."))
    await collect(loop, callers_request("What time is it?"))

    first, second = _requests(loop)
    said, result = second.messages[len(first.messages) :]
    assert said.role is Role.ASSISTANT
    assert [type(part).__name__ for part in said.parts] == ["TextPart", "ToolCallPart"]
    assert result.role is Role.USER
    part = result.parts[0]
    assert isinstance(part, ToolResultPart)
    assert part.is_error


async def test_the_servers_tools_are_offered_beside_the_caller_s_own() -> None:
    loop = _loop(_clock(), text="Hello.")
    await collect(loop, callers_request("Hello.", tools=(OWN_TOOL,)))
    assert [tool.name for tool in _requests(loop)[0].tools] == ["mine", "now"]


async def test_the_service_s_own_requests_are_offered_nothing() -> None:
    loop = _loop(_clock(), text="Hello.")
    await collect(loop, make_request("Hello."))
    assert _requests(loop)[0].tools == ()


async def test_a_limit_of_0_turns_tools_off() -> None:
    loop = _loop(_clock(), limit=0, **_once())
    events = await collect(loop, callers_request("What time is it?"))
    assert _requests(loop)[0].tools == ()
    assert not any(isinstance(event, ServerToolCall) for event in events)


async def test_usage_adds_up_over_the_rounds() -> None:
    loop = _loop(_clock(), **_once(text="Let me see."))
    tally = Tally()
    async with aclosing(loop.generate(callers_request("What time is it?"), tally)) as run:
        events = [event async for event in run]

    usage = _end(events).usage
    first, second = _requests(loop)
    prompts = [await loop._backend.count(request) for request in (first, second)]
    assert usage.prompt_tokens == sum(prompts)
    # Three words and two pieces of arguments, then one word.
    assert usage.output_tokens == 3 + 2 + 1
    assert tally.usage == usage


async def test_a_run_that_is_broken_off_has_used_what_all_its_rounds_used() -> None:
    loop = _loop(_clock(text="one two three"), **_once())
    tally = Tally()
    async with aclosing(loop.generate(callers_request("What time is it?"), tally)) as run:
        async for event in run:
            if text_of([event]):
                break
    assert tally.output_tokens == 2 + 1
    assert tally.prompt_tokens > await loop._backend.count(_requests(loop)[0])


async def test_the_caller_s_calls_are_left_to_the_caller() -> None:
    clock = _clock()
    loop = _loop(clock, text="", tool_calls=[MINE])
    events = await collect(loop, callers_request("Hello.", tools=(OWN_TOOL,)))
    assert _without_deltas(events) == [
        *("Started", "ToolCallStarted", "ToolCallDelta", "ToolCallDelta", "Finished")
    ]
    assert _end(events).reason is FinishReason.TOOL_USE
    assert clock.calls == []


@pytest.mark.parametrize("calls", [[NOW, MINE], [MINE, NOW]])
async def test_a_mixed_round_runs_its_own_calls_and_ends_for_the_caller(
    calls: list[dict[str, Any]],
) -> None:
    clock = _clock()
    loop = _loop(clock, text="", tool_calls=calls)
    events = await collect(loop, callers_request("Hello.", tools=(OWN_TOOL,)))

    assert [e.name for e in events if isinstance(e, ToolCallStarted | ServerToolCall)] == [
        *("mine", "now")
    ]
    arguments = "".join(e.arguments for e in events if isinstance(e, ToolCallDelta))
    assert arguments == '{"a":1}'
    assert clock.calls == [("now", {"zone": "UTC"})]
    assert any(isinstance(event, ServerToolResult) for event in events)
    assert _end(events).reason is FinishReason.TOOL_USE
    assert len(_requests(loop)) == 1


class _Closing(ScriptedBackend):
    """Notes that a run was closed."""

    closed = False

    async def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        try:
            async with aclosing(super().generate(request, tally)) as events:
                async for event in events:
                    yield event
        finally:
            self.closed = True


async def test_a_run_that_is_closed_closes_the_backends_before_it_returns() -> None:
    entry = make_entry(mcp_servers=(stdio_server("clock"),))
    backend = _Closing(entry)
    run = ToolLoop(StubPool(_clock()), entry, backend).generate(callers_request("Hello."))
    await anext(run)
    await run.aclose()
    assert backend.closed


async def test_a_caller_that_can_send_it_back_gets_a_pause_at_the_limit() -> None:
    clock = _clock()
    loop = _loop(clock, limit=2, text="", tool_calls=[NOW])
    events = await collect(loop, callers_request("What time is it?", can_pause=True))

    assert _without_deltas(events) == [
        *("Started", "ServerToolCall", "ServerToolResult", "ServerToolCall", "ServerToolResult"),
        "Finished",
    ]
    assert _end(events).reason is FinishReason.PAUSE
    assert _end(events).usage.output_tokens == 4
    assert len(clock.calls) == 2


async def test_bug_52_another_caller_gets_an_answer_made_without_tools_at_the_limit() -> None:
    loop = _loop(_clock(), limit=2, text="Hm.", tool_calls=[NOW])
    events = await collect(loop, callers_request("What time is it?", tools=(OWN_TOOL,)))

    assert [tool.name for tool in _requests(loop)[-1].tools] == ["mine"]
    assert len(_requests(loop)) == 3
    assert sum(isinstance(event, ServerToolResult) for event in events) == 2
    assert _end(events).reason is FinishReason.END


async def test_bug_50_and_51_a_paused_answer_goes_on_where_it_is_sent_back() -> None:
    call = ServerToolCallPart(id="1", server="clock", name="now", arguments="{}")
    result = ServerToolResultPart(call_id="1", text="eleven")
    paused = Message(role=Role.ASSISTANT, parts=(call, result))
    loop = _loop(_clock(), **_once())
    events = await collect(loop, callers_request("What time is it?", paused))

    assert text_of(events) == "eleven"
    assert _requests(loop)[0].messages[1].parts[0] == ToolCallPart(
        id="1", name="now", arguments="{}"
    )


async def test_a_call_that_was_left_to_the_server_is_run_first() -> None:
    call = ServerToolCallPart(id="1", server="clock", name="now", arguments='{"zone":"UTC"}')
    clock = _clock()
    loop = _loop(clock, **_once())
    left = Message(role=Role.ASSISTANT, parts=(call,))
    events = await collect(loop, callers_request("What time is it?", left))

    assert events[1] == ServerToolResult(call_id="1", text="noon")
    assert isinstance(events[0], Started)
    assert text_of(events) == "noon"
    assert clock.calls == [("now", {"zone": "UTC"})]


def _left(number: int) -> Message:
    """Return a turn that leaves so many calls to the server."""
    calls = (
        ServerToolCallPart(id=str(count), server="clock", name="now", arguments="{}")
        for count in range(number)
    )
    return Message(role=Role.ASSISTANT, parts=tuple(calls))


async def test_only_so_many_calls_are_left_to_the_server() -> None:
    clock = _clock()
    loop = _loop(clock, **_once())
    await collect(loop, callers_request("What time is it?", _left(MOST_LEFT_OVER)))
    assert len(clock.calls) == MOST_LEFT_OVER

    left = _left(MOST_LEFT_OVER + 1)
    (failed,) = await collect(loop, callers_request("What time is it?", left))
    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.INVALID_REQUEST
    assert failed.message.startswith("messages: the last turn leaves 33 calls")
    assert len(clock.calls) == MOST_LEFT_OVER


async def test_only_so_many_calls_of_one_answer_run_at_the_same_time(
    eventually: Eventually,
) -> None:
    clock = _clock()
    clock.gate = asyncio.Event()
    calls = [NOW] * (MOST_AT_ONCE + 3)
    loop = _loop(clock, **_once(tool_calls=calls))
    run = asyncio.create_task(collect(loop, callers_request("What time is it?")))
    await eventually(lambda: len(clock.calls) >= MOST_AT_ONCE)
    assert len(clock.calls) == MOST_AT_ONCE

    clock.gate.set()
    await run
    assert len(clock.calls) == len(calls)


async def test_a_call_that_was_left_to_a_server_that_is_gone_is_an_error() -> None:
    call = ServerToolCallPart(id="1", server="gone", name="before", arguments="{}")
    left = Message(role=Role.ASSISTANT, parts=(call,))
    events = await collect(_loop(_clock(), **_once()), callers_request("Hello.", left))
    assert isinstance(events[1], ServerToolResult)
    assert events[1].is_error


async def test_earlier_calls_are_replayed_to_a_model_without_servers() -> None:
    call = ServerToolCallPart(id="1", server="clock", name="now", arguments="{}")
    result = ServerToolResultPart(call_id="1", text="eleven")
    told = Message(role=Role.ASSISTANT, parts=(call, result))
    events = await collect(_loop(**_once()), callers_request("What time is it?", told))
    assert text_of(events) == "eleven"


@pytest.mark.parametrize("name", ["now", "clock__now"])
async def test_a_server_s_tool_can_be_demanded_by_name_and_only_once(name: str) -> None:
    loop = _loop(_clock(), **_once())
    choice = ToolChoice(mode=ToolMode.NAMED, name=name, parallel=False)
    await collect(loop, callers_request("What time is it?", tool_choice=choice))

    first, second = _requests(loop)
    assert first.tool_choice == replace(choice, name="now")
    assert second.tool_choice == ToolChoice(mode=ToolMode.AUTO, parallel=False)


async def test_tools_that_are_not_offered_can_still_be_demanded_and_are_run_once() -> None:
    loop = _loop(_clock(), always=False, **_once())
    await collect(loop, callers_request("What time is it?"))
    assert _requests(loop)[0].tools == ()

    choice = ToolChoice(mode=ToolMode.NAMED, name="now")
    request = callers_request("What time is it?", tool_choice=choice, tools=(OWN_TOOL,))
    assert text_of(await collect(loop, request)) == "noon"
    names = [[tool.name for tool in each.tools] for each in _requests(loop)[1:]]
    assert names == [["mine", "now"], ["mine"]]


async def test_a_tool_that_nobody_has_cannot_be_demanded() -> None:
    choice = ToolChoice(mode=ToolMode.NAMED, name="never")
    events = await collect(_loop(_clock()), callers_request("Hello.", tool_choice=choice))
    assert events == [
        Failed(
            code=ErrorCode.INVALID_REQUEST,
            message="tool_choice.name: Tool 'never' not found in provided tools",
        )
    ]


async def test_a_tool_cannot_be_required_where_none_is_offered() -> None:
    loop = _loop(_clock(), always=False)
    choice = ToolChoice(mode=ToolMode.ANY)
    events = await collect(loop, callers_request("Hello.", tool_choice=choice))
    assert isinstance(events[0], Failed)
    assert events[0].code is ErrorCode.INVALID_REQUEST


async def test_an_answer_that_is_cut_in_a_call_runs_nothing() -> None:
    clock = _clock()
    request = callers_request("What time is it?")
    request = replace(request, sampling=replace(request.sampling, max_tokens=1))
    events = await collect(_loop(clock, **_once()), request)
    assert _without_deltas(events) == ["Started", "Finished"]
    assert _end(events).reason is FinishReason.LENGTH
    assert clock.calls == []


async def test_all_rounds_together_are_no_longer_than_the_answer_may_be() -> None:
    loop = _loop(_clock(text="one two three four"), **_once())
    request = callers_request("What time is it?")
    request = replace(request, sampling=replace(request.sampling, max_tokens=4, min_tokens=3))
    events = await collect(loop, request)
    assert text_of(events) == "one two"
    assert _end(events).reason is FinishReason.LENGTH
    assert _end(events).usage.output_tokens == 4


async def test_an_answer_that_the_calls_used_up_ends_with_them() -> None:
    request = callers_request("What time is it?")
    request = replace(request, sampling=replace(request.sampling, max_tokens=2))
    events = await collect(_loop(_clock(), **_once()), request)
    assert _without_deltas(events)[-2:] == ["ServerToolResult", "Finished"]
    assert _end(events).reason is FinishReason.LENGTH


async def test_arguments_that_are_none_never_reach_the_server() -> None:
    clock = _clock()
    call = {"name": "now", "arguments": ["}{ no json"]}
    loop = _loop(clock, **_once(tool_calls=[call]))
    events = await collect(loop, callers_request("What time is it?"))
    result = next(event for event in events if isinstance(event, ServerToolResult))
    assert result.is_error
    assert clock.calls == []
    assert _end(events).reason is FinishReason.END


async def test_calls_of_one_round_run_at_the_same_time_and_are_told_in_their_order(
    eventually: Eventually,
) -> None:
    clocks = [_clock("a", "noon"), _clock("b", "night")]
    gate = clocks[0].gate = asyncio.Event()
    calls = [{"name": "a__now"}, {"name": "b__now"}]
    loop = _loop(*clocks, text="", tool_calls=calls, echo_results=True)
    run = asyncio.create_task(collect(loop, callers_request("What time is it?")))
    await eventually(lambda: bool(clocks[0].calls and clocks[1].calls))
    gate.set()
    events = await run
    told = [e.server for e in events if isinstance(e, ServerToolCall)]
    results = [e.text for e in events if isinstance(e, ServerToolResult)]
    assert (told, results) == (["a", "b"], ["noon", "night"])


async def test_a_run_that_is_closed_cancels_all_its_calls(eventually: Eventually) -> None:
    clocks = [_clock("a"), _clock("b")]
    for clock in clocks:
        clock.gate = asyncio.Event()
    calls = [{"name": "a__now"}, {"name": "b__now"}]
    loop = _loop(*clocks, **_once(tool_calls=calls))
    run = asyncio.create_task(collect(loop, callers_request("What time is it?")))
    await eventually(lambda: all(clock.calls for clock in clocks))
    run.cancel()
    await asyncio.wait([run])
    assert [clock.cancelled for clock in clocks] == [["now"], ["now"]]
    assert loop.stats().running == 0


async def test_a_server_of_the_operator_s_that_is_away_is_done_without() -> None:
    away, clock = _clock("away"), _clock()
    away.fault = "it does not answer"
    loop = _loop(away, clock, **_once())
    events = await collect(loop, callers_request("What time is it?"))
    assert text_of(events) == "noon"


async def test_the_prompt_is_counted_with_the_tools() -> None:
    loop = _loop(_clock())
    request = callers_request("What time is it?")
    bare = await loop._backend.count(request)
    with_tools = await loop.count(request)
    assert with_tools > bare
    events = await collect(loop, request)
    assert events[0] == Started(prompt_tokens=with_tools)


async def test_a_failure_in_a_later_round_is_the_answer_s() -> None:
    loop = _loop(_clock(text="a b c"), **_once(fail_at=2, tool_calls=[{"name": "now"}]))
    events = await collect(loop, callers_request("What time is it?"))
    assert isinstance(events[-1], Failed)
    assert events[-1].code is ErrorCode.ENGINE_FAILED


async def test_requests_without_tools_go_past_the_loop() -> None:
    loop = _loop(text="Hello.")
    request = callers_request("Hello.")
    run: Any = loop.generate(request)
    assert run.__qualname__ == "ScriptedBackend.generate"


async def test_a_real_server_is_called() -> None:
    call = {"name": "echo", "arguments": [msgspec.json.encode({"text": "grüß dich"}).decode()]}
    entry = make_entry(
        engine_options={"text": "", "tool_calls": [call], "echo_results": True},
        mcp_servers=(stdio_server(),),
    )
    pool = McpPool()
    loop = ToolLoop(pool, entry, ScriptedBackend(entry))
    try:
        await loop.start()
        assert text_of(await collect(loop, callers_request("Hello."))) == "grüß dich"
    finally:
        await loop.stop()
        await pool.close()
