"""Processes that are killed in the middle of requests: no usage is lost, and none counted twice."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from tests.acceptance.client import body, script
from tests.acceptance.stack import Gateway, Server, Stack, ending, eventually
from tests.acceptance.teams import Member, make_member, rows, set_price

pytestmark = pytest.mark.acceptance

_REQUESTS = 200
_AT_ONCE = 24
_KILL_AFTER = 60
# A request of a gateway and an engine that are both dead is waited for so long.
_SETTINGS = {"REQUEST_TIMEOUT_S": "20", "SETTLE_AFTER_S": "3"}


class Traffic:
    """Two hundred streams, and the ids of those that have shown text."""

    def __init__(self, model: str, member: Member) -> None:
        self._body = body(model, script(tokens=20, token_delay_s=0.02), stream=True)
        self._headers = {"x-api-key": member.key}
        self._lock = threading.Lock()
        self.gateway: Gateway
        self.begun: set[str] = set()
        self.answered: set[str] = set()
        self.ended = 0
        self.half_way = threading.Event()

    def send(self, _: int) -> None:
        """Send one request, and note what came of it."""
        try:
            with httpx.stream(
                "POST",
                f"{self.gateway.url}/v1/messages",
                json=self._body,
                headers=self._headers,
                timeout=30,
                trust_env=False,
            ) as answer:
                self._read(answer)
        except httpx.TransportError:
            pass  # its gateway was killed
        with self._lock:
            self.ended += 1
            if self.ended == _KILL_AFTER:
                self.half_way.set()

    def _read(self, answer: httpx.Response) -> None:
        request_id = answer.headers["request-id"].removeprefix("req_")
        with self._lock:
            self.begun.add(request_id)
        for line in answer.iter_lines():
            if line == "event: content_block_delta":
                with self._lock:
                    self.answered.add(request_id)


@pytest.mark.parametrize("victim", ["gateway", "worker", "clerk", "redis"])
def test_whoever_is_killed_every_answer_has_one_usage_entry(stack: Stack, victim: str) -> None:
    model = stack.add_model(f"killed-{victim}", capacity=_AT_ONCE)
    member = make_member(stack)
    set_price(stack, model)
    traffic = Traffic(model, member)
    with ExitStack() as cleanup:

        def start(name: str) -> Server:
            if name == "gateway":
                traffic.gateway = stack.start_gateway(**_SETTINGS)
                return cleanup.enter_context(ending(traffic.gateway.server))
            made = stack.start_worker(model) if name == "worker" else stack.start_clerk(**_SETTINGS)
            return cleanup.enter_context(ending(made))

        servers = {name: start(name) for name in ("clerk", "worker", "gateway")}
        traffic.gateway.wait_for_model(model)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            sending = pool.map(traffic.send, range(_REQUESTS))
            assert traffic.half_way.wait(60)
            if victim == "redis":
                stack.restart_valkey()
            else:
                servers[victim].kill()
                start(victim)
            list(sending)
        _check(stack, member, traffic)


def _check(stack: Stack, member: Member, traffic: Traffic) -> None:
    assert len(traffic.answered) > _KILL_AFTER
    eventually(lambda: _is_settled(stack, member, traffic), "every request is settled")
    billed = [
        request_id
        for (request_id,) in rows(
            stack,
            "SELECT request_id::text FROM jobs_ledgerentry WHERE account_id = %s",
            member.team_id,
        )
    ]
    assert len(billed) == len(set(billed))
    assert traffic.answered <= set(billed)
    free = rows(
        stack,
        "SELECT id FROM jobs_requestrecord WHERE team_id = %s AND status = 'completed' "
        "AND (cost_micros = 0 OR cost_micros IS NULL)",
        member.team_id,
    )
    assert free == []
    stack.manage("verify_ledger")


def _is_settled(stack: Stack, member: Member, traffic: Traffic) -> bool:
    settled = {
        request_id
        for request_id, is_open in rows(
            stack,
            "SELECT id::text, settled_at IS NULL FROM jobs_requestrecord WHERE team_id = %s",
            member.team_id,
        )
        if not is_open
    }
    return traffic.begun <= settled
