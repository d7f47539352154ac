"""Tandem in front of Tandem: models that an upstream runs, through each of its dialects.

The upstream is an install of its own here, which can be killed and looked into. Everything that a
model does is tested by the tests that are marked `every_route`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import psycopg
import pytest
from psycopg import sql

from inference.transport.frames import EngineState
from tests.acceptance.client import ENDLESS, Client, script
from tests.acceptance.routes import UPSTREAMS, Origin, add_far_models, start_worker
from tests.acceptance.stack import Gateway, Stack, ending, free_port, insert_upstream

pytestmark = pytest.mark.acceptance

THERE = "Vendor/There-1"


class Upstairs:
    """A Tandem of its own, and how the other one reaches it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.port = free_port()
        self.gateway = stack.start_gateway_on(self.port)
        stack.add_model(THERE, reasoning="default_on")
        stack.start_worker(THERE)
        self.gateway.wait_for_model(THERE)

    def go_away(self) -> None:
        """End its gateway."""
        self.gateway.server.stop()

    def come_back(self) -> None:
        """Start its gateway where it was."""
        self.gateway = self.stack.start_gateway_on(self.port)
        self.gateway.wait_for_model(THERE)


@pytest.fixture(scope="module")
def upstairs() -> Iterator[Upstairs]:
    """Return the upstream."""
    with (
        tempfile.TemporaryDirectory(prefix="tandem-upstream-") as folder,
        Stack(Path(folder)) as running,
    ):
        yield Upstairs(running)


@pytest.fixture(scope="module")
def models(stack: Stack, gateway: Gateway, upstairs: Upstairs) -> dict[str, str]:
    """Return the names here of the model there, by the dialect that leads to it."""
    origin = Origin("upstairs", upstairs.gateway.url, upstairs.stack.key)
    found = add_far_models(stack, origin, {THERE: {"reasoning": "default_on"}})
    start_worker(stack, gateway, found.values())
    return {dialect: name for (dialect, _), name in found.items()}


@pytest.fixture(params=UPSTREAMS)
def dialect(request: pytest.FixtureRequest) -> str:
    """Return each dialect of upstreams in turn."""
    return str(request.param)


@pytest.fixture
def model(models: dict[str, str], dialect: str) -> str:
    """Return the model behind each dialect in turn."""
    return models[dialect]


def refused(response: httpx.Response, status: int) -> str:
    """Return what an error says that has to have this status."""
    assert response.status_code == status, response.text
    return str(response.json()["error"]["message"])


def test_usage_is_the_upstreams(client: Client, model: str, upstairs: Upstairs) -> None:
    said = script(text="One two three.", cached_tokens=3)
    there = Client(upstairs.gateway.url, upstairs.stack.key)
    try:
        expected = there.ask(THERE, said).json()["usage"]
    finally:
        there.http.close()

    usage = client.ask(model, said).json()["usage"]

    for name in ("input_tokens", "cache_read_input_tokens", "output_tokens"):
        assert usage[name] == expected[name]


def test_a_prompt_that_is_too_long_there_is_told_in_the_words_that_clients_look_for(
    client: Client, model: str
) -> None:
    message = refused(client.ask(model, "apple " * 100_000), 400)

    assert message.startswith("prompt is too long: ")
    assert message.endswith(" tokens > 100000 maximum")


def test_what_a_dialect_cannot_carry_is_refused_by_name(
    client: Client,
    chat: openai.OpenAI,
    models: dict[str, str],
) -> None:
    asked: dict[str, Any] = {"role": "user", "content": "Hello."}
    body = {"model": models["openai"], "messages": [asked], "min_p": 0.1}
    assert "`min_p`" in refused(client.http.post("/v1/chat/completions", json=body), 400)
    with pytest.raises(openai.BadRequestError, match="`seed`"):
        chat.chat.completions.create(
            model=models["anthropic"],
            messages=[asked],  # type: ignore[list-item]
            seed=3,
        )


def test_tokens_are_counted_where_the_upstream_counts(
    client: Client, sdk: anthropic.Anthropic, models: dict[str, str]
) -> None:
    messages: Any = [{"role": "user", "content": "Hello, how are you?"}]
    counted = sdk.messages.count_tokens(model=models["anthropic"], messages=messages)
    body = {"model": models["openai"], "messages": messages}
    message = refused(client.http.post("/v1/messages/count_tokens", json=body), 400)

    assert counted.input_tokens == 5
    assert "cannot be counted" in message


def test_an_engine_that_fails_there_is_an_error_here(client: Client, model: str) -> None:
    with client.stream(model, script(tokens=10, fail_at=4)) as stream:
        frames = stream.rest()

    assert frames[-1].name == "error"
    assert "the script says to fail here" in frames[-1].data["error"]["message"]


def test_who_leaves_here_leaves_there(client: Client, model: str, upstairs: Upstairs) -> None:
    with client.stream(model, ENDLESS) as stream:
        stream.wait_for("content_block_delta")
        upstairs.stack.wait_for_in_flight(THERE, 1)

    upstairs.stack.wait_for_in_flight(THERE, 0)


def test_an_upstream_may_go_away_and_come_back(
    client: Client, model: str, upstairs: Upstairs
) -> None:
    upstairs.go_away()
    try:
        message = refused(client.ask(model, "Hello."), 503)
    finally:
        upstairs.come_back()

    assert "the upstream cannot be reached" in message
    assert client.ask(model, "Hello.").status_code == 200


def test_a_model_without_its_key_says_so_and_takes_nobody_down(
    stack: Stack, upstairs: Upstairs
) -> None:
    key_file = stack.layout.data_dir / "no-key"
    url = f"http://127.0.0.1:{upstairs.port}/v1"
    insert_upstream(stack.layout.database_url, "keyless", base_url=url, key=f"${{file:{key_file}}}")
    name = stack.add_model("keyless", backend="openai", upstream_id="keyless")
    with ending(stack.start_worker(name, until=EngineState.FAILED)) as worker:
        (reason,) = {report.reason for report in stack.reports() if report.model == name}
        assert worker.alive

    assert f"the file {key_file} cannot be read" in reason


def test_no_key_is_anywhere_but_where_it_belongs(
    client: Client, models: dict[str, str], stack: Stack, upstairs: Upstairs
) -> None:
    planted = upstairs.stack.key
    for name in models.values():
        answered = client.ask(name, "Hello.")
        failed = client.ask(name, script(fail_at=0))
        assert planted not in answered.text + str(answered.headers)
        assert planted not in failed.text + str(failed.headers)

    for log in (*stack.layout.logs.iterdir(), *upstairs.stack.layout.logs.iterdir()):
        text = log.read_text(errors="replace")
        assert planted not in text, log
        assert stack.key not in text, log
    assert tables_with(stack, planted) == []
    assert tables_with(upstairs.stack, stack.key) == []


def tables_with(stack: Stack, text: str) -> list[str]:
    """Return the tables that hold a text in any row."""
    with psycopg.connect(stack.layout.database_url) as connection:
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
        assert names
        query = sql.SQL("SELECT count(*) FROM {} AS t WHERE position({} IN t::text) > 0")
        return [
            name
            for (name,) in names
            if connection.execute(query.format(sql.Identifier(name), text)).fetchone() != (0,)
        ]
