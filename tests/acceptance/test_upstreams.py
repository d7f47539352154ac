"""Tandem in front of Tandem: models that an upstream runs, through each of its dialects.

The tests of tools and of Chat that are imported here run once more, with such models.
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
from tests.acceptance.client import ENDLESS, WHOLE_STREAM, Client, names_of, script, text_of
from tests.acceptance.stack import Gateway, Stack, ending, free_port, insert_upstream
from tests.acceptance.test_chat import (  # noqa: F401
    test_a_calls_result_goes_back_to_the_model,
    test_an_answer_is_cut_where_it_may_not_go_on,
    test_bug_12_a_stop_of_any_number_ends_the_answer,
    test_bug_65_a_call_ends_with_tool_calls,
    test_usage_is_streamed_only_where_asked_for,
)
from tests.acceptance.test_tools import (  # noqa: F401
    test_a_call_has_its_name_and_arguments,
    test_a_result_goes_back_to_the_model,
    test_arguments_arrive_piece_by_piece,
    test_malformed_arguments_are_repaired,
    test_parallel_calls_are_blocks_of_their_own,
    test_parallel_calls_can_be_switched_off,
    test_text_comes_before_a_call,
)

pytestmark = pytest.mark.acceptance

THERE = "Vendor/There-1"
DIALECTS = {"openai": "/v1", "anthropic": ""}
# Tandem takes the switch of reasoning in Chat as vLLM does.
OPTIONS = {"openai": {"accepts": ["chat_template_kwargs"]}, "anthropic": {}}
THOUGHT = "They ask for the capital."


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
    key_file = stack.layout.data_dir / "upstream-key"
    key_file.write_text(upstairs.stack.key)
    names = {}
    for dialect, path in DIALECTS.items():
        url = f"http://127.0.0.1:{upstairs.port}{path}"
        insert_upstream(
            stack.layout.database_url,
            dialect,
            base_url=url,
            key=f"${{file:{key_file}}}",
            retries=0,
        )
        names[dialect] = stack.add_model(
            f"through-{dialect}",
            backend=dialect,
            upstream_id=dialect,
            upstream_model=THERE,
            upstream_options=OPTIONS[dialect],
            reasoning="default_on",
        )
        stack.start_worker(names[dialect])
        gateway.wait_for_model(names[dialect])
    return names


@pytest.fixture(params=DIALECTS)
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


def test_messages_are_answered_and_streamed(client: Client, model: str) -> None:
    said = script(text="One two three.", thinking=THOUGHT)
    whole = client.ask(model, said, thinking={"type": "disabled"}).json()
    with client.stream(model, "Hello.") as stream:
        frames = stream.rest()

    assert whole["model"] == model
    assert [block["type"] for block in whole["content"]] == ["text"]
    assert whole["content"][0]["text"] == "One two three."
    assert names_of(frames) == WHOLE_STREAM
    assert text_of(frames) == "All work and no play makes Jack a dull boy."
    assert frames[0].data["message"]["model"] == model


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


def test_reasoning_is_told_apart(chat: openai.OpenAI, model: str) -> None:
    asked: dict[str, Any] = {"role": "user", "content": script(thinking=THOUGHT, text="Paris.")}
    said = chat.chat.completions.create(model=model, messages=[asked])  # type: ignore[list-item]

    assert said.model == model
    assert said.choices[0].message.content == "Paris."
    assert said.choices[0].message.to_dict()["reasoning_content"] == THOUGHT


def test_responses_are_answered(chat: openai.OpenAI, model: str) -> None:
    said = chat.responses.create(model=model, input=script(text="Paris."))

    assert said.model == model
    assert said.output_text == "Paris."


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
    assert "`top_k`" in refused(client.ask(models["openai"], "Hello.", top_k=3), 400)
    asked: dict[str, Any] = {"role": "user", "content": "Hello."}
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
