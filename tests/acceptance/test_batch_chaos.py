"""Everything is killed, again and again, while batches and background streams run.

Nothing is lost, nothing comes twice, nothing is billed twice.
"""

from __future__ import annotations

import io
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anthropic
import httpx
import openai
import pytest

from jobs.quota.keys import QuotaKeys
from tests.acceptance.stack import PREFIX, Gateway, Server, Stack, eventually, free_port
from tests.acceptance.teams import MICROS, Member, make_member, rows, set_price
from tests.holders import read_holder

pytestmark = pytest.mark.acceptance

# The order and the moments of the kills, and how often at least each process is killed.
_SEED = 7
_ROUNDS = 4
_QUIET_S = 3.0
_FRESH_S = 0.2
# Of the one batch, which comes first, and of the other, which lasts beyond the last kill.
_MESSAGES = 140
_ROWS = 650
_FOLLOWERS = 3
_PATIENCE_S = 300.0
_PROMPT_TOKENS = 12
_TOKENS = 40
_SCRIPT = f'script: {{"tokens": {_TOKENS}, "token_delay_s": 0.05}}'
_LOST = (httpx.TransportError, openai.APIError, anthropic.APIError)


@dataclass
class _Install:
    """A Tandem whose processes can each be killed and started anew."""

    stack: Stack
    model: str
    member: Member
    port: int = field(default_factory=free_port)
    followers: list[_Follower] = field(default_factory=list)

    def start(self) -> None:
        """Start one of each, beat too, which nobody kills: it only rings."""
        self.gateway: Gateway = self.stack.start_gateway_on(self.port)
        self.clerk = self.stack.start_clerk()
        self.worker = self.stack.start_worker(self.model)
        self.stack.start_beat()
        self.gateway.wait_for_model(self.model)

    @property
    def url(self) -> str:
        """The gateway's address, the same after each start."""
        return f"http://127.0.0.1:{self.port}"

    def kill_worker(self) -> None:
        """Kill the engine worker while it works, but nothing that it alone can be blamed for.

        What has died with three engines runs by itself, and another death would end it.
        """
        # As long as there are rows of a batch, those that it has room for run beside.
        why = f"the engine is in the middle of what is followed (see {self.worker.log})"
        eventually(lambda: any(each.is_amid for each in self.followers), why, _PATIENCE_S)
        if self._has_died_thrice():
            return
        self.worker.kill()
        self.worker = self.stack.start_worker(self.model)

    def kill_clerk(self) -> None:
        """Kill the clerk."""
        self.clerk.kill()
        self.clerk = self.stack.start_clerk()

    def kill_gateway(self) -> None:
        """Kill the gateway."""
        self.gateway.server.kill()
        self.gateway = self.stack.start_gateway_on(self.port)

    def kill_valkey(self) -> None:
        """Kill the Redis-protocol server, which keeps what it wrote."""
        self.stack.restart_valkey()

    def _has_died_thrice(self) -> bool:
        # It is left alone for seconds after its third death: none can begin behind this look.
        query = "SELECT count(*) FROM jobs_work WHERE deaths >= 3 AND state <> 'done'"
        return rows(self.stack, query) != [(0,)]

    def has_died_in_both(self) -> bool:
        """Whether engines have died while they ran rows of either batch, or it is over."""
        query = (
            "SELECT bool_or(deaths > 0) OR bool_and(state = 'done') FROM jobs_work"
            " WHERE batch_id IS NOT NULL GROUP BY batch_id"
        )
        return rows(self.stack, query) == [(True,)] * 2

    def servers(self) -> Iterator[Server]:
        """What must be alive at the end."""
        yield from (self.gateway.server, self.clerk, self.worker, self.stack.valkey)


@pytest.fixture
def install(tmp_path: Path) -> Iterator[_Install]:
    with Stack(tmp_path) as stack:
        model = stack.add_model("chaotic", capacity=16)
        set_price(stack, model)
        member = make_member(stack, prepaid=True)
        stack.manage("top_up", member.team_name, str(MICROS), "--nonce", "chaos")
        made = _Install(stack, model, member)
        made.start()
        yield made


def test_everything_completes_whatever_is_killed(install: _Install) -> None:
    messages_id = _submit_anthropic(install)
    rows_id = _submit_openai(install)
    over = threading.Event()
    install.followers += [_Follower(install, over) for _ in range(_FOLLOWERS)]
    for follower in install.followers:
        follower.start()
    _kill_at_random(install)
    over.set()
    for follower in install.followers:
        follower.join(_PATIENCE_S)
        assert not follower.is_alive()
        assert follower.problems == []
    assert sum(follower.followed for follower in install.followers) > 0

    _check_openai(install, rows_id)
    _check_anthropic(install, messages_id)
    _check_work(install)
    _check_ledger(install)


def _kill_at_random(install: _Install) -> None:
    choose = random.Random(_SEED)
    others: list[Callable[[], None]] = [
        install.kill_clerk,
        install.kill_gateway,
        install.kill_valkey,
    ]
    rounds = 0
    # The engine has to die in the middle of either batch.
    while rounds < _ROUNDS or not install.has_died_in_both():
        # Each of them once, then each once more in another order.
        for kill in (install.kill_worker, *choose.sample(others, len(others))):
            kill()
            time.sleep(choose.uniform(0, _QUIET_S))
        rounds += 1
    for server in install.servers():
        assert server.alive, server.log


class _Follower(threading.Thread):
    """Asks for one background stream after another, and reads each to its end, in pieces."""

    def __init__(self, install: _Install, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.problems: list[str] = []
        self.followed = 0
        self._install = install
        self._over = over
        self._count = 0
        self._heard_s = 0.0

    @property
    def is_amid(self) -> bool:
        """Whether an engine is saying what is read here, neither its first words nor its last."""
        fresh = time.monotonic() - self._heard_s < _FRESH_S
        return fresh and _TOKENS // 4 < self._count < _TOKENS

    def run(self) -> None:
        """Follow until told that it is over, and what has begun to its end."""
        while not self._over.is_set():
            events: list[dict[str, Any]] = []
            with suppress(httpx.TransportError):
                self._read(events, self._ask)
            if not events:
                # The gateway was away: nobody knows whether anything was begun.
                time.sleep(0.2)
                continue
            self._follow(events)

    def _follow(self, events: list[dict[str, Any]]) -> None:
        response_id = events[0]["response"]["id"]
        end_s = time.monotonic() + _PATIENCE_S
        while not _has_ended(events):
            if time.monotonic() > end_s:
                self.problems.append(f"{response_id} has not ended")
                return
            with suppress(httpx.TransportError):
                self._read(events, lambda http: self._resume(http, response_id, events))
            time.sleep(0.1)
        self._check(response_id, events)

    def _check(self, response_id: str, events: list[dict[str, Any]]) -> None:
        self.followed += 1
        numbers = [event["sequence_number"] for event in events]
        if numbers != list(range(len(events))):
            self.problems.append(f"{response_id}: a gap or a repeat in {numbers}")
        last = events[-1]
        if last["type"] != "response.completed":
            self.problems.append(f"{response_id} ended with {last}")
            return
        said = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        if said != last["response"]["output"][0]["content"][0]["text"]:
            self.problems.append(f"{response_id}: the stream is not the response")
        if len(said.split()) != _TOKENS:
            self.problems.append(f"{response_id}: not whole: {said!r}")

    def _ask(self, http: httpx.Client) -> Any:
        body = {
            "model": self._install.model,
            "input": _SCRIPT,
            "background": True,
            "stream": True,
        }
        return http.stream("POST", "/v1/responses", json=body)

    def _resume(self, http: httpx.Client, response_id: str, events: list[dict[str, Any]]) -> Any:
        after = events[-1]["sequence_number"]
        query = {"stream": "true", "starting_after": str(after)}
        return http.stream("GET", f"/v1/responses/{response_id}", params=query)

    def _read(self, events: list[dict[str, Any]], ask: Callable[[httpx.Client], Any]) -> None:
        """Add the events of one connection, until it ends or is cut."""
        headers = {"authorization": f"Bearer {self._install.member.key}"}
        with (
            httpx.Client(base_url=self._install.url, headers=headers, timeout=30) as http,
            ask(http) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                return
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line.removeprefix("data: ")))
                    self._count, self._heard_s = len(events), time.monotonic()


def _has_ended(events: list[dict[str, Any]]) -> bool:
    return events[-1]["type"] in ("response.completed", "response.failed", "response.incomplete")


def _submit_openai(install: _Install) -> str:
    lines = (
        {
            "custom_id": f"row-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": install.model,
                "messages": [{"role": "user", "content": _SCRIPT}],
            },
        }
        for number in range(_ROWS)
    )
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    with _openai(install) as client:
        file = client.files.create(file=("in.jsonl", io.BytesIO(data)), purpose="batch")
        batch = client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
    return batch.id


def _submit_anthropic(install: _Install) -> str:
    with anthropic.Anthropic(base_url=install.url, api_key=install.member.key) as client:
        batch = client.messages.batches.create(
            requests=[
                {
                    "custom_id": f"message-{number}",
                    "params": {
                        "model": install.model,
                        "max_tokens": 1000,
                        "messages": [{"role": "user", "content": _SCRIPT}],
                    },
                }
                for number in range(_MESSAGES)
            ]
        )
    return batch.id


def _check_openai(install: _Install, batch_id: str) -> None:
    with _openai(install) as client:

        def completed() -> Any:
            with suppress(*_LOST):
                batch = client.batches.retrieve(batch_id)
                return batch if batch.status == "completed" else None
            return None

        batch = eventually(completed, "the batch completes", _PATIENCE_S)
        assert batch.request_counts.total == batch.request_counts.completed == _ROWS
        assert batch.output_file_id is not None
        lines = client.files.content(batch.output_file_id).text.splitlines()
    answers = [json.loads(line) for line in lines]
    assert sorted(answer["custom_id"] for answer in answers) == sorted(
        f"row-{number}" for number in range(_ROWS)
    )
    for answer in answers:
        (choice,) = answer["response"]["body"]["choices"]
        assert len(choice["message"]["content"].split()) == _TOKENS


def _check_anthropic(install: _Install, batch_id: str) -> None:
    with anthropic.Anthropic(base_url=install.url, api_key=install.member.key) as client:

        def ended() -> Any:
            with suppress(*_LOST):
                return client.messages.batches.retrieve(batch_id).processing_status == "ended"
            return None

        eventually(ended, "the message batch ends", _PATIENCE_S)
        results = list(client.messages.batches.results(batch_id))
    assert sorted(result.custom_id for result in results) == sorted(
        f"message-{number}" for number in range(_MESSAGES)
    )
    assert {result.result.type for result in results} == {"succeeded"}


def _check_work(install: _Install) -> None:
    """Nothing is left of the work, and engines did die while they ran some of each kind."""
    found = rows(
        install.stack,
        "SELECT count(*), count(*) FILTER (WHERE state = 'done'),"
        " count(*) FILTER (WHERE deaths > 0) FROM jobs_work GROUP BY batch_id ORDER BY 1",
    )
    assert [(count, done) for count, done, _ in found] == [(_MESSAGES, _MESSAGES), (_ROWS, _ROWS)]
    assert all(died for _, _, died in found), found
    ((continued,),) = rows(
        install.stack,
        "SELECT count(*) FROM jobs_requestrecord WHERE dialect = 'responses' AND attempts > 1",
    )
    assert continued


def _check_ledger(install: _Install) -> None:
    """Each request has one entry, for what one undisturbed attempt at it uses."""
    stack = install.stack
    eventually(lambda: stack.redis.xlen(stack.keys.records) == 0, "every record is written")
    ((responses, not_completed),) = rows(
        stack,
        "SELECT count(*), count(*) FILTER (WHERE status <> 'completed') FROM jobs_storedresponse",
    )
    assert not_completed == 0
    entries = rows(
        stack,
        "SELECT count(*), count(DISTINCT request_id), input_tokens, output_tokens"
        " FROM jobs_ledgerentry WHERE kind = 'usage' GROUP BY input_tokens, output_tokens",
    )
    expected = _ROWS + _MESSAGES + responses
    assert entries == [(expected, expected, _PROMPT_TOKENS, _TOKENS)]
    stack.manage("verify_ledger")
    state = QuotaKeys(PREFIX).team(install.member.team_id)[0]

    def held_micros() -> int:
        kept = cast("bytes", stack.redis.hget(state, "team"))
        return int(read_holder(kept)["held"])

    eventually(lambda: not held_micros(), "nothing is held for anything")


def _openai(install: _Install) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{install.url}/v1", api_key=install.member.key)
