"""What a further round may cost is held before it is begun."""

from __future__ import annotations

import pytest

from inference.backends.scripted import ScriptedBackend
from inference.events import Event, Finished, FinishReason, ServerToolResult
from inference.mcp.credit import NextRound
from inference.mcp.loop import ToolLoop
from inference.mcp.results import Outcome
from tests.contracts.requests import collect, make_entry
from tests.unit.inference.mcp.servers import StubPool, StubSession, callers_request, stdio_server

NOW = {"name": "now", "arguments": ['{"zone":', '"UTC"}']}


class Credit:
    """Covers so many rounds, and notes which it was asked for."""

    def __init__(self, rounds: int) -> None:
        self.asked: list[NextRound] = []
        self._rounds = rounds

    async def covers(self, a_round: NextRound) -> bool:
        self.asked.append(a_round)
        return len(self.asked) <= self._rounds


async def answer(
    credit: Credit, *, limit: int = 10, can_pause: bool = False, calls: bool = True
) -> list[Event]:
    """Return what comes of a model that calls in every round, if it `calls` at all."""
    script = {"text": "", "tool_calls": [NOW]} if calls else {"text": "Hello."}
    entry = make_entry(
        engine_options=script, mcp_servers=(stdio_server("clock"),), tool_recursion_limit=limit
    )
    pool = StubPool(StubSession("clock", {"now": Outcome("noon")}))
    loop = ToolLoop(pool, entry, ScriptedBackend(entry), credit)
    return await collect(loop, callers_request("What time is it?", can_pause=can_pause))


def end(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def rounds(events: list[Event]) -> int:
    return sum(isinstance(event, ServerToolResult) for event in events)


@pytest.mark.parametrize(
    ("can_pause", "reason"), [(True, FinishReason.PAUSE), (False, FinishReason.LENGTH)]
)
async def test_an_answer_ends_before_a_round_that_nobody_can_pay_for(
    can_pause: bool, reason: FinishReason
) -> None:
    credit = Credit(rounds=1)
    events = await answer(credit, can_pause=can_pause)
    assert rounds(events) == 2
    assert end(events).reason is reason
    assert [asked.used.output_tokens for asked in credit.asked] == [2, 4]
    assert credit.asked[-1].used == end(events).usage


async def test_the_first_round_was_paid_for_at_the_door() -> None:
    credit = Credit(rounds=0)
    assert end(await answer(credit, calls=False)).reason is FinishReason.END
    assert credit.asked == []


async def test_the_round_without_tools_at_the_limit_is_paid_for_too() -> None:
    credit = Credit(rounds=1)
    events = await answer(credit, limit=2)
    assert rounds(events) == 2
    assert end(events).reason is FinishReason.LENGTH
    assert len(credit.asked) == 2


async def test_nothing_is_held_for_a_pause() -> None:
    credit = Credit(rounds=9)
    assert end(await answer(credit, limit=1, can_pause=True)).reason is FinishReason.PAUSE
    assert credit.asked == []
