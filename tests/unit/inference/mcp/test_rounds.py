"""One round, and what it leaves to do."""

from __future__ import annotations

import pytest

from inference.backends.port import Tally
from inference.errors import ErrorCode
from inference.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    ServerToolResult,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from inference.mcp.names import ListedTool, Offer
from inference.mcp.rounds import Conversation, Round, RoundTally
from inference.request import TextPart, ToolCallPart
from tests.contracts.requests import make_request

OFFER = Offer((), [ListedTool(server="clock", name="now", schema={})])
OURS: list[Event] = [ToolCallStarted(id="1", name="now"), ToolCallDelta("{}")]
THEIRS: list[Event] = [ToolCallStarted(id="2", name="mine"), ToolCallDelta("{}")]
USAGE = Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)


def _round(*events: Event, reason: FinishReason = FinishReason.TOOL_USE) -> Round:
    a_round = Round(OFFER, is_first=True)
    for event in [*events, Finished(reason=reason, usage=USAGE)]:
        a_round.take(event)
    return a_round


def test_a_call_of_a_server_s_tool_is_not_seen_before_it_is_run() -> None:
    a_round = Round(OFFER, is_first=False)
    events = [Started(1), TextDelta("a"), *OURS, TextDelta("b"), *THEIRS, *OURS]
    seen = [event for event in events if a_round.take(event) is not None]
    assert seen == [TextDelta("a"), TextDelta("b"), *THEIRS]
    assert a_round.calls_client


def test_a_failure_is_seen_and_leaves_the_round_unfinished() -> None:
    a_round = Round(OFFER, is_first=True)
    failed = Failed(code=ErrorCode.ENGINE_FAILED, message="no")
    assert a_round.take(failed) is failed
    assert a_round.finished is None
    assert a_round.server_calls() == []


def test_all_that_was_said_is_kept_for_the_next_round() -> None:
    assert _round(TextDelta("a"), *OURS).said == (
        TextPart("a"),
        ToolCallPart(id="1", name="now", arguments="{}"),
    )


@pytest.mark.parametrize(
    ("reason", "calls", "is_last"),
    [
        (FinishReason.TOOL_USE, 1, False),
        (FinishReason.STOP_SEQUENCE, 1, True),
        (FinishReason.LENGTH, 0, True),
    ],
)
def test_the_reason_of_its_end_says_what_is_run_and_whether_it_goes_on(
    reason: FinishReason, calls: int, is_last: bool
) -> None:
    a_round = _round(*OURS, reason=reason)
    assert len(a_round.server_calls()) == calls
    assert a_round.is_last is is_last


def test_a_round_that_calls_the_caller_s_tools_is_the_last() -> None:
    a_round = _round(*OURS, *THEIRS)
    assert [call.event.name for call in a_round.server_calls()] == ["now"]
    assert a_round.is_last


def test_a_refusal_runs_nothing_and_is_the_last() -> None:
    a_round = _round(*OURS, reason=FinishReason.REFUSAL)
    assert a_round.server_calls() == []
    assert a_round.is_last


def test_the_next_prompt_is_no_longer_than_what_was_said_and_what_tools_said() -> None:
    conversation = Conversation(make_request("Hello.", max_tokens=50), OFFER)
    a_round = Round(OFFER, is_first=True)
    used = Usage(prompt_tokens=100, cached_tokens=0, output_tokens=20)
    for event in [*OURS, Finished(reason=FinishReason.TOOL_USE, usage=used)]:
        a_round.take(event)
    conversation.go_on(a_round, [ServerToolResult(call_id="1", text="ü" * 5)])
    next_round = conversation.next_round(4096)
    assert (next_round.used, next_round.prompt_tokens) == (used, 100 + 20 + 10)
    assert next_round.request.sampling.max_tokens == 30
    assert next_round.context_tokens == 4096


def test_what_rounds_use_adds_up_at_every_moment() -> None:
    whole = Tally()
    for prompt_tokens in (10, 20):
        tally = RoundTally(whole)
        tally.prompt_tokens = prompt_tokens
        tally.cached_tokens = 4
        for _ in range(3):
            tally.output_tokens += 1
        # As where an engine reports it once more.
        tally.output_tokens = 5
    assert (whole.prompt_tokens, whole.cached_tokens, whole.output_tokens) == (30, 8, 10)
    assert (tally.prompt_tokens, tally.output_tokens) == (20, 5)
