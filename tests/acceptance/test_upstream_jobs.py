"""Work that lasts, on models that others run and with tools that the server runs.

What callers see is what the tests of batches and of the background say, which are run through
upstreams too. Here is what it costs, and what becomes of it when its worker is killed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types.messages import MessageBatch
from openai.types import Batch

from tests.acceptance.client import script
from tests.acceptance.routes import DIRECT, ROUTES, Origin, add_far_models, start_worker
from tests.acceptance.stack import Gateway, Stack, ending, eventually
from tests.acceptance.teams import Member, make_member, rows, set_price
from tests.acceptance.test_background import ended
from tests.acceptance.test_message_batches import request, results, wait_for_end
from tests.acceptance.test_openai_batches import chat_row, lines, submit, wait
from tests.acceptance.test_server_tools import SERVER, call, once

pytestmark = pytest.mark.acceptance

TOKENS = 20
SLOW = script(tokens=TOKENS, token_delay_s=0.1)
ROWS = 16
RESPONSES = 3
FULL_PRICE = {"batch_permille": 1000, "background_permille": 1000}


class Caller:
    """A team of its own, with the official clients of both APIs."""

    def __init__(self, stack: Stack, gateway: Gateway, cleanup: ExitStack) -> None:
        self.stack = stack
        self.member: Member = make_member(stack)
        key = self.member.key
        self.sdk = cleanup.enter_context(anthropic.Anthropic(base_url=gateway.url, api_key=key))
        self.api = cleanup.enter_context(openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key))

    def message_batch(self, model: str, *contents: str) -> MessageBatch:
        requests = [request(model, f"row-{n}", said) for n, said in enumerate(contents)]
        return self.sdk.messages.batches.create(requests=requests)

    def chat_batch(self, model: str, *contents: str) -> Batch:
        return submit(
            self.api, [chat_row(f"row-{n}", model, said) for n, said in enumerate(contents)]
        )

    def billed(self, count: int) -> list[tuple[int, int, int]]:
        """Wait for so many entries of the ledger; return their tokens and costs, and that they are
        of as many requests."""
        query = (
            "SELECT input_tokens, output_tokens, -amount_micros, request_id FROM jobs_ledgerentry"
            " WHERE account_id = %s AND kind = 'usage' ORDER BY number"
        )

        def look() -> list[tuple[Any, ...]]:
            found = rows(self.stack, query, self.member.team_id)
            return found if len(found) >= count else []

        found = eventually(look, f"{count} requests are billed")
        assert len({request_id for *_, request_id in found}) == len(found) == count
        return [(tokens, output, cost) for tokens, output, cost, _ in found]


@pytest.fixture(scope="module", autouse=True)
def clerk(stack: Stack) -> Iterator[None]:
    """Have somebody end batches and bill them."""
    with ending(stack.start_clerk(SETTLE_AFTER_S="2")):
        yield


@pytest.fixture
def caller(stack: Stack, gateway: Gateway) -> Iterator[Caller]:
    with ExitStack() as cleanup:
        yield Caller(stack, gateway, cleanup)


def cost(tokens: int, output: int) -> int:
    """Return what `set_price` asks for that much."""
    return tokens + 2 * output


@pytest.mark.every_route
def test_work_costs_what_was_used(stack: Stack, caller: Caller, model: str) -> None:
    set_price(stack, model, **FULL_PRICE)
    said = script(tokens=TOKENS)

    messages = wait_for_end(caller.sdk, caller.message_batch(model, said, said))
    chats = wait(caller.api, caller.chat_batch(model, said))
    response = ended(
        caller.api, caller.api.responses.create(model=model, input=said, background=True).id
    )

    used = []
    for line in results(caller.sdk, messages).values():
        assert line.result.type == "succeeded"
        usage = line.result.message.usage
        used.append((usage.input_tokens, usage.output_tokens))
    answer = lines(caller.api, chats.output_file_id)["row-0"]["response"]["body"]["usage"]
    used.append((answer["prompt_tokens"], answer["completion_tokens"]))
    assert response.usage is not None
    used.append((response.usage.input_tokens, response.usage.output_tokens))
    assert {output for _, output in used} == {TOKENS}
    assert sorted(caller.billed(4)) == sorted((*each, cost(*each)) for each in used)


# Tools that the server runs.


@pytest.fixture(scope="module")
def tooled(stack: Stack, gateway: Gateway, engine_model: str) -> Iterator[dict[str, str]]:
    """Return the names of models with the tests' MCP server, by the way that leads to them."""
    fields: dict[str, Any] = {"tool_recursion_limit": 2}
    own = stack.add_model("tooled-for-jobs", **fields)
    origin = Origin("tooled", gateway.url, stack.mint("tooled"))
    far = add_far_models(stack, origin, {engine_model: fields})
    models = {DIRECT: own} | {route: name for (route, _), name in far.items()}
    stack.add_mcp_server("jobs", *models.values(), command=[sys.executable, SERVER])
    for name in models.values():
        set_price(stack, name, **FULL_PRICE)
    with ending(start_worker(stack, gateway, models.values())):
        yield models


@pytest.mark.parametrize("way", ROUTES)
def test_tools_are_run_in_every_lane(caller: Caller, tooled: dict[str, str], way: str) -> None:
    model, said = tooled[way], once(call("echo", text="noon"), text="Hm.")

    messages = wait_for_end(caller.sdk, caller.message_batch(model, said))
    chats = wait(caller.api, caller.chat_batch(model, said))
    response = ended(
        caller.api, caller.api.responses.create(model=model, input=said, background=True).id
    )

    result = results(caller.sdk, messages)["row-0"].result
    assert result.type == "succeeded"
    message: Any = result.message
    assert [block.type for block in message.content] == [
        *("text", "mcp_tool_use", "mcp_tool_result", "text")
    ]
    assert (message.content[1].server_name, message.content[3].text) == ("jobs", "noon")
    body = lines(caller.api, chats.output_file_id)["row-0"]["response"]["body"]
    assert body["choices"][0]["message"]["content"] == "Hm.\n\nnoon"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert [item.type for item in response.output] == ["message", "mcp_call", "message"]
    ran: Any = response.output[1]
    assert (ran.server_label, json.loads(ran.arguments), ran.output) == (
        *("jobs", {"text": "noon"}),
        "noon",
    )

    # Both rounds are one request's.
    used = (message.usage.input_tokens, message.usage.output_tokens)
    assert caller.billed(3) == [(*used, cost(*used))] * 3


# A worker that is killed.


def running(stack: Stack, member: Member) -> set[tuple[str, str]]:
    """Return the kinds of work of a team that are in the middle of being done."""
    query = "SELECT DISTINCT model, dialect FROM jobs_work WHERE team_id = %s AND state = 'running'"
    return {(model, dialect) for model, dialect in rows(stack, query, member.team_id)}


def test_a_worker_that_is_killed_in_the_middle_bills_nothing_twice(
    stack: Stack, gateway: Gateway, engine_model: str, caller: Caller
) -> None:
    origin = Origin("doomed", gateway.url, stack.mint("doomed"))
    far = add_far_models(stack, origin, {engine_model: {"capacity": 8}})
    raw, translated = far["anthropic", engine_model], far["openai", engine_model]
    for name in (raw, translated):
        set_price(stack, name, **FULL_PRICE)
    with ending(start_worker(stack, gateway, [raw, translated])) as worker:
        messages = caller.message_batch(raw, *[SLOW] * ROWS)
        chats = caller.chat_batch(translated, *[SLOW] * ROWS)
        eventually(
            lambda: running(stack, caller.member) == {(raw, "anthropic"), (translated, "chat")},
            "both batches run",
        )
        made = [
            caller.api.responses.create(model=name, input=SLOW, background=True).id
            for name in (raw, translated)
            for _ in range(RESPONSES)
        ]
        eventually(lambda: len(running(stack, caller.member)) == 4, "all kinds of work run")
        worker.kill()
        with ending(start_worker(stack, gateway, [raw, translated])):
            found = results(caller.sdk, wait_for_end(caller.sdk, messages))
            chats = wait(caller.api, chats)
            responses = [ended(caller.api, each) for each in made]

    assert {line.result.type for line in found.values()} == {"succeeded"}
    assert len(found) == len(lines(caller.api, chats.output_file_id)) == ROWS
    assert {response.status for response in responses} == {"completed"}
    check_bills(stack, caller)


def check_bills(stack: Stack, caller: Caller) -> None:
    """Check that all was billed once, for one attempt, although engines died with all kinds."""
    count = 2 * ROWS + 2 * RESPONSES
    caller.billed(count)
    eventually(lambda: stack.redis.xlen(stack.keys.records) == 0, "every record is written")
    billed = caller.billed(count)
    ((tokens, output, micros),) = set(billed)
    assert (output, micros) == (TOKENS, cost(tokens, output))
    again = rows(
        stack,
        "SELECT DISTINCT model, dialect FROM jobs_requestrecord"
        " WHERE team_id = %s AND attempts > 1",
        caller.member.team_id,
    )
    assert len(again) == 4
    stack.manage("verify_ledger")
