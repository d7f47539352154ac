"""Money, limits and the trail, seen from outside: what callers are told, and what is left of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import anthropic
import httpx
import pytest

from tests.acceptance.client import ENDLESS, Client, body, script
from tests.acceptance.stack import Gateway, Server, Stack, ending, eventually
from tests.acceptance.teams import MICROS, Member, make_member, rows, set_price

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def clerk(stack: Stack) -> Iterator[Server]:
    """Return a clerk that nobody kills."""
    with ending(stack.start_clerk(SETTLE_AFTER_S="2")) as clerk:
        yield clerk


@pytest.fixture(scope="module")
def priced(stack: Stack, gateway: Gateway, model: str, clerk: Server) -> str:
    """Return a model that costs a micro-unit a token of input, and two of output."""
    set_price(stack, model)
    return model


class Caller(Client):
    """A client with the key of a team of its own."""

    def __init__(self, gateway: Gateway, member: Member) -> None:
        super().__init__(gateway.url, member.key)
        self.member = member

    def control(self, path: str, **query: Any) -> Any:
        """Read from the control API."""
        answer = self.http.get(f"/control/v1/{path}", params=query)
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.json()

    def settled(self, count: int) -> list[dict[str, Any]]:
        """Wait until so many requests of the team have cost something, or nothing, for good."""

        def look() -> list[dict[str, Any]]:
            items = self.control("activity")["items"]
            done = [item for item in items if item["cost_micros"] is not None]
            return done if len(done) == count else []

        return eventually(look, f"{count} requests are accounted for")


Join = Callable[[Member], Caller]


@pytest.fixture
def join(gateway: Gateway) -> Iterator[Join]:
    """Return a function that makes callers of the shared gateway."""
    with ExitStack() as cleanup:

        def make(member: Member) -> Caller:
            caller = Caller(gateway, member)
            cleanup.callback(caller.http.close)
            return caller

        yield make


def entries(stack: Stack, member: Member) -> list[tuple[Any, ...]]:
    """Return kind and amount of the team's ledger, oldest first."""
    return rows(
        stack,
        "SELECT kind, amount_micros FROM jobs_ledgerentry WHERE account_id = %s ORDER BY number",
        member.team_id,
    )


@pytest.mark.every_route
def test_a_finished_request_is_billed_once_and_in_the_trail(
    stack: Stack, join: Join, priced: str
) -> None:
    caller = join(make_member(stack))
    answer = caller.ask(priced, script(tokens=10, cached_tokens=0))
    said = answer.json()
    (item,) = caller.settled(1)
    used = said["usage"]
    cost = used["input_tokens"] + 2 * used["output_tokens"]
    assert item["cost_micros"] == cost
    assert item["status"] == "completed"
    assert (item["prompt_tokens"], item["completion_tokens"]) == (used["input_tokens"], 10)
    assert entries(stack, caller.member) == [("usage", -cost)]
    for name in (answer.headers["request-id"], item["id"]):
        detail = caller.control(f"activity/{name}")
        assert detail["body_json"]["model"] == priced
        assert detail["result_json"]["content"] == said["content"]


@pytest.mark.every_route
def test_a_streamed_request_costs_the_same(stack: Stack, join: Join, priced: str) -> None:
    caller = join(make_member(stack))
    asked = script(tokens=10, cached_tokens=3)
    caller.ask(priced, asked)
    with caller.stream(priced, asked) as stream:
        stream.rest()
    first, second = caller.settled(2)
    assert first["cost_micros"] == second["cost_micros"] > 0


@pytest.mark.every_route
def test_a_caller_that_leaves_pays_for_what_it_got(stack: Stack, join: Join, priced: str) -> None:
    caller = join(make_member(stack))
    with caller.stream(priced, ENDLESS) as stream:
        for _ in range(3):
            stream.wait_for("content_block_delta")
    (item,) = caller.settled(1)
    assert item["status"] == "cancelled"
    assert 3 <= item["completion_tokens"] < 1000
    assert item["cost_micros"] == item["prompt_tokens"] + 2 * item["completion_tokens"]


@pytest.mark.every_route
def test_what_fails_in_the_engine_costs_nothing(stack: Stack, join: Join, priced: str) -> None:
    caller = join(make_member(stack))
    assert caller.ask(priced, script(tokens=5, fail_at=2)).status_code >= 500
    (item,) = caller.settled(1)
    assert (item["status"], item["cost_micros"]) == ("failed", 0)
    assert entries(stack, caller.member) == [("usage", 0)]


def test_a_balance_that_is_used_up_refuses_until_it_is_topped_up(
    stack: Stack, gateway: Gateway, join: Join, priced: str
) -> None:
    scopes = ["inference", "read", "admin"]
    member = make_member(stack, prepaid=True, key={"scopes": scopes})
    caller = join(member)
    refused = caller.ask(priced, script(tokens=1))
    assert refused.status_code == 402
    assert refused.json()["error"]["type"] == "billing_error"
    assert refused.headers["x-should-retry"] == "false"
    with (
        anthropic.Anthropic(base_url=gateway.url, api_key=member.key) as sdk,
        pytest.raises(anthropic.APIStatusError) as caught,
    ):
        sdk.messages.create(
            model=priced, max_tokens=1, messages=[{"role": "user", "content": "hi"}]
        )
    assert caught.value.status_code == 402
    # Counting and reading are never blocked.
    assert caller.http.get("/v1/models").status_code == 200
    for _ in range(2):
        paid = caller.http.post(
            "/control/v1/billing/topups",
            params={"nonce": "payment-1"},
            json={"amount_micros": 5000},
        )
        assert paid.status_code < 300, paid.text
    assert entries(stack, member) == [("topup", 5000)]
    asked = caller.ask(priced, script(tokens=4), max_tokens=100)
    assert asked.status_code == 200, asked.text
    (item,) = caller.settled(1)
    summary = caller.control("billing/summary")
    assert summary["credit_balance_micros"] == 5000 - item["cost_micros"]


def test_many_callers_never_spend_the_same_credit(
    stack: Stack, gateway: Gateway, join: Join, priced: str
) -> None:
    member = make_member(stack, prepaid=True)
    stack.manage("top_up", member.team_name, "0.005", "--nonce", "race")
    caller = join(member)
    second = stack.start_gateway()
    with ending(second.server), Caller(second, member).http as http:
        callers = [caller.http, http]

        def ask(number: int) -> int:
            asked = script(tokens=100)
            sent = body(priced, asked, max_tokens=100)
            return callers[number % 2].post("/v1/messages", json=sent).status_code

        with ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(ask, range(64)))
    assert set(statuses) == {200, 402}
    caller.settled(statuses.count(200))
    assert caller.control("billing/summary")["credit_balance_micros"] >= 0


def test_a_spend_cap_says_when_it_resets(stack: Stack, join: Join, priced: str) -> None:
    caller = join(make_member(stack, daily_spend_cap_micros=1500))
    assert caller.ask(priced, script(tokens=4), max_tokens=10).status_code == 200
    refused = caller.ask(priced, script(tokens=4), max_tokens=1000)
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "billing_error"
    assert "spend limit reached (daily; resets " in refused.json()["error"]["message"]
    assert refused.headers["x-should-retry"] == "false"


def test_a_rate_limit_is_told_before_and_after_it_is_reached(
    stack: Stack, gateway: Gateway, join: Join, priced: str
) -> None:
    member = make_member(stack, requests_per_minute=2, key={"output_tokens_per_minute": 1_000_000})
    caller = join(member)
    for left in ("1", "0"):
        passed = caller.ask(priced, script(tokens=1))
        assert passed.status_code == 200
        assert passed.headers["anthropic-ratelimit-requests-limit"] == "2"
        assert passed.headers["anthropic-ratelimit-requests-remaining"] == left
        assert passed.headers["x-ratelimit-remaining-requests"] == left
    refused = caller.ask(priced, script(tokens=1))
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert refused.headers["anthropic-ratelimit-requests-remaining"] == "0"
    with (
        anthropic.Anthropic(base_url=gateway.url, api_key=member.key, max_retries=0) as sdk,
        pytest.raises(anthropic.RateLimitError),
    ):
        sdk.messages.create(
            model=priced, max_tokens=1, messages=[{"role": "user", "content": "hi"}]
        )


def test_refusals_and_the_recorder_s_backlog_are_measured(
    stack: Stack, join: Join, priced: str
) -> None:
    caller = join(make_member(stack, prepaid=True))
    assert caller.ask(priced, script(tokens=1)).status_code == 402
    metrics = caller.http.get("/metrics").text
    labels = f'dialect="anthropic",model="{priced}",reason="balance_exhausted"'
    assert f"tandem_refusals_total{{{labels}}}" in metrics
    assert "tandem_records_waiting " in metrics
    assert "tandem_records_dead 0.0" in metrics


def test_requests_at_once_are_limited_and_given_back(stack: Stack, join: Join, priced: str) -> None:
    caller = join(make_member(stack, max_concurrent=1))
    with caller.stream(priced, ENDLESS) as stream:
        stream.wait_for("content_block_delta")
        refused = caller.ask(priced, script(tokens=1))
        assert refused.status_code == 429
        assert "requests at once" in refused.json()["error"]["message"]
    eventually(
        lambda: caller.ask(priced, script(tokens=1)).status_code == 200, "the place is given back"
    )


def test_a_key_does_only_what_it_may(stack: Stack, join: Join, priced: str) -> None:
    reader = join(make_member(stack, key={"scopes": ["read"]}))
    refused = reader.ask(priced, "hi")
    assert refused.status_code == 403
    assert "'inference'" in refused.json()["error"]["message"]
    assert reader.control("activity")["items"] == []
    other = join(make_member(stack, key={"allowed_models": ["another"]}))
    refused = other.ask(priced, "hi")
    assert refused.status_code == 403
    assert refused.json()["error"]["type"] == "permission_error"
    assert other.http.get("/v1/models").json()["data"] == []
    over = datetime.now(UTC) - timedelta(seconds=1)
    expired = join(make_member(stack, key={"expires_at": over}))
    refused = expired.ask(priced, "hi")
    assert refused.status_code == 401
    assert "expired" in refused.json()["error"]["message"]


def test_a_key_sees_its_own_team_only(stack: Stack, join: Join, priced: str) -> None:
    one, other = (join(make_member(stack)) for _ in range(2))
    said = one.ask(priced, script(tokens=1)).json()
    one.settled(1)
    assert other.control("activity")["items"] == []
    assert other.http.get(f"/control/v1/activity/{said['id']}").status_code == 404


@pytest.mark.every_route
def test_a_team_without_retention_keeps_no_word(stack: Stack, join: Join, priced: str) -> None:
    caller = join(make_member(stack, zero_data_retention=True))
    caller.ask(priced, script(text="a secret"))
    (item,) = caller.settled(1)
    detail = caller.control(f"activity/{item['id']}")
    assert not detail.get("body_json")
    assert not detail.get("result_json")
    assert rows(stack, "SELECT * FROM jobs_requestbody WHERE record_id = %s", item["id"]) == []


def test_the_ledger_and_the_trail_hold(stack: Stack, join: Join, priced: str) -> None:
    caller = join(make_member(stack))
    caller.ask(priced, script(tokens=2))
    caller.settled(1)
    stack.manage("verify_ledger")
    stack.manage("verify_audit")


def test_it_is_priced_by_the_version_in_force(stack: Stack, join: Join, priced: str) -> None:
    caller = join(make_member(stack))
    caller.ask(priced, script(tokens=5))
    (before,) = caller.settled(1)
    assert before["cost_micros"] < MICROS
    set_price(stack, priced, output_micros_per_mtok=MICROS * MICROS)
    caller.ask(priced, script(tokens=5))
    after = max(item["cost_micros"] for item in caller.settled(2))
    assert after > 5 * MICROS
    set_price(stack, priced)
