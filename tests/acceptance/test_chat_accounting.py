"""What several answers and flex cost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.client import script
from tests.acceptance.stack import Gateway, Server, Stack, ending
from tests.acceptance.teams import make_member, set_price
from tests.acceptance.test_accounting import Caller
from tests.acceptance.test_chat import ENDLESS, asked

pytestmark = pytest.mark.acceptance

PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def clerk(stack: Stack) -> Iterator[Server]:
    """Return a clerk that nobody kills."""
    with ending(stack.start_clerk(SETTLE_AFTER_S="2")) as clerk:
        yield clerk


@pytest.fixture(scope="module")
def priced(stack: Stack, gateway: Gateway, clerk: Server) -> Iterator[str]:
    """Return a model that costs a micro-unit a token of input, and two of output."""
    model = stack.add_model("chats-for-money", capacity=2)
    set_price(stack, model, flex_permille=500)
    with ending(stack.start_worker(model)):
        gateway.wait_for_model(model)
        yield model


@pytest.fixture
def caller(stack: Stack, gateway: Gateway) -> Iterator[Caller]:
    """Return a client with the key of a team of its own."""
    made = Caller(gateway, make_member(stack))
    with made.http:
        yield made


def test_the_prompt_is_paid_once_for_several_answers(caller: Caller, priced: str) -> None:
    answered = caller.http.post(PATH, json=asked(priced, script(text="One two."), n=3)).json()
    usage = answered["usage"]
    items = caller.settled(3)
    assert sum(item["prompt_tokens"] for item in items) == usage["prompt_tokens"]
    assert sum(item["completion_tokens"] for item in items) == usage["completion_tokens"] == 6
    cost = sum(item["cost_micros"] for item in items)
    assert cost == usage["prompt_tokens"] + 2 * usage["completion_tokens"]
    # The answer's id is that of the one that paid for the prompt.
    first = caller.control(f"activity/{answered['id']}")
    assert first["prompt_tokens"] == usage["prompt_tokens"]
    assert first["dialect"] == "chat"


def test_flex_costs_less_and_a_refusal_nothing(
    caller: Caller, stack: Stack, gateway: Gateway, priced: str
) -> None:
    body = asked(priced, script(text="One two."), service_tier="flex")
    usage = caller.http.post(PATH, json=body).json()["usage"]
    (item,) = caller.settled(1)
    full = usage["prompt_tokens"] + 2 * usage["completion_tokens"]
    assert item["cost_micros"] == (full + 1) // 2
    assert item["service_tier"] == "flex"
    hasty = stack.start_gateway(FLEX_WAIT_S="0.3")
    with ending(hasty.server), caller.stream(priced, ENDLESS) as busy:
        busy.wait_for("content_block_delta")
        with caller.stream(priced, ENDLESS) as other:
            other.wait_for("content_block_delta")
            hasty.wait_for_model(priced)
            refused = caller.http.post(f"{hasty.url}{PATH}", json=body)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "resource_unavailable"
    # Only the two that ran cost something.
    costly = {item["id"]: item["cost_micros"] for item in caller.settled(3)}
    assert refused.headers["x-request-id"].removeprefix("req_") not in costly
