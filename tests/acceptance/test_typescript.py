"""The official TypeScript SDK against a live gateway: what it sends is taken, what it gets fits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.client import ENDLESS, Client, RawRequest, body, script
from tests.acceptance.stack import PATIENCE_S, Gateway, Stack, ending
from tests.acceptance.test_images import PNG, inline, show
from tests.acceptance.test_thinking import THOUGHT
from tests.acceptance.test_thinking import asked as ask_thinker
from tests.acceptance.test_tools import CALL, SAID, play

pytestmark = pytest.mark.acceptance

_SOURCE = Path(__file__).parent / "typescript"
_INSTALL = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
_INSTALL_PATIENCE_S = 180


class TypeScript:
    """Runs scenarios of `typescript/run.mjs`, each in a process of its own."""

    def __init__(self, folder: Path, url: str, key: str) -> None:
        self._folder = folder
        self._url = url
        self._key = key

    def run(self, scenario: str, *arguments: Any) -> Any:
        """Return what a scenario returned."""
        outcome = self._outcome(scenario, arguments, self._key)
        assert "value" in outcome, outcome
        return outcome["value"]

    def fail(self, scenario: str, *arguments: Any, key: str | None = None) -> dict[str, Any]:
        """Return the SDK's error that a scenario ended with."""
        outcome = self._outcome(scenario, arguments, key or self._key)
        assert "error" in outcome, outcome
        error: dict[str, Any] = outcome["error"]
        return error

    def _outcome(self, scenario: str, arguments: tuple[Any, ...], key: str) -> dict[str, Any]:
        # No other variable: the SDK and Node would heed many.
        environment = {
            "PATH": os.environ["PATH"],
            "ANTHROPIC_BASE_URL": self._url,
            "ANTHROPIC_API_KEY": key,
        }
        ended = subprocess.run(
            ["node", "run.mjs", scenario, json.dumps(arguments)],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ended.returncode == 0, ended.stderr
        outcome: dict[str, Any] = json.loads(ended.stdout)
        return outcome


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the scenarios and the SDK. Where npm cannot do it, skip, but not in CI.

    Nothing is written beside the sources.
    """
    folder = tmp_path_factory.mktemp("npm") / "typescript"
    shutil.copytree(_SOURCE, folder, ignore=shutil.ignore_patterns("node_modules"))
    try:
        subprocess.run(_INSTALL, cwd=folder, check=True, timeout=_INSTALL_PATIENCE_S)
    except (OSError, subprocess.SubprocessError) as error:
        if "CI" in os.environ:
            raise
        pytest.skip(f"the TypeScript SDK cannot be installed: {error}")
    return folder


@pytest.fixture(scope="session")
def typescript(installed: Path, stack: Stack, gateway: Gateway) -> TypeScript:
    """Return the SDK as a client of the shared gateway."""
    return TypeScript(installed, gateway.url, stack.key)


@pytest.fixture(scope="module")
def gifted(installed: Path, stack: Stack, gateway: Gateway) -> Iterator[str]:
    """Return a model that sees and thinks."""
    name = stack.add_model("sees-and-thinks", vision=True, reasoning="default_on")
    with ending(stack.start_worker(name)):
        gateway.wait_for_model(name)
        yield name


def check_equal(streamed: dict[str, Any], whole: dict[str, Any]) -> None:
    """Check that two messages are the same but for what names them and their calls."""
    for message in (streamed, whole):
        assert message.pop("id").startswith("msg_")
        # Null, or undefined and so left out: nothing was refused.
        assert message.pop("stop_details", None) is None
        for block in message["content"]:
            block.pop("id", None)
    # The SDK's own: it is about structured output.
    assert streamed.pop("parsed_output") is None
    # The SDK takes the counts from a stream's end, but not their break-down by lifetime.
    del whole["usage"]["cache_creation"]
    streamed["usage"].pop("cache_creation", None)
    assert streamed == whole


def test_a_message_is_created(typescript: TypeScript, model: str) -> None:
    message = typescript.run("create", body(model, script(text="Paris.")))
    assert message["model"] == model
    assert message["content"] == [{"type": "text", "text": "Paris."}]
    assert message["stop_reason"] == "end_turn"
    assert message["usage"]["output_tokens"] == 1


def test_a_stream_adds_up_to_the_whole_message(typescript: TypeScript, model: str) -> None:
    asked = body(model, script(text="The capital of France is Paris.", cached_tokens=3))
    streamed = typescript.run("stream", asked)
    assert streamed["heard"]["text"] == "The capital of France is Paris."
    check_equal(streamed["message"], typescript.run("create", asked))


def test_a_streamed_call_adds_up_to_the_whole_message(typescript: TypeScript, model: str) -> None:
    asked = play(model, tool_calls=[CALL])
    streamed = typescript.run("stream", asked)
    assert streamed["heard"]["json"] == "".join(CALL["arguments"])
    check_equal(streamed["message"], typescript.run("create", asked))


def test_streamed_thinking_adds_up_to_the_whole_message(
    typescript: TypeScript, gifted: str
) -> None:
    asked = ask_thinker(gifted)
    streamed = typescript.run("stream", asked)
    heard, message = streamed["heard"], streamed["message"]
    assert (heard["thinking"], heard["text"]) == (THOUGHT, "Paris.")
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    check_equal(message, typescript.run("create", asked))


def test_a_forced_calls_result_goes_back_to_the_model(typescript: TypeScript, model: str) -> None:
    asked = play(model, tool_calls=[CALL])
    asked["tool_choice"] = {"type": "tool", "name": "get_weather"}
    turns = typescript.run("useTools", asked, "18 degrees", script(text="Mild."))
    (call,) = turns["called"]["content"]
    assert call["type"] == "tool_use"
    assert (call["name"], call["input"]) == ("get_weather", SAID)
    assert turns["called"]["stop_reason"] == "tool_use"
    assert turns["answered"]["content"] == [{"type": "text", "text": "Mild."}]
    assert turns["answered"]["stop_reason"] == "end_turn"


def test_an_image_reaches_the_model_and_is_counted(typescript: TypeScript, gifted: str) -> None:
    asked = show(gifted, inline())
    used = typescript.run("create", asked)["usage"]["input_tokens"]
    # The scripted engine counts four bytes as a token.
    assert used > len(PNG) / 4
    counting = {"model": gifted, "messages": asked["messages"]}
    assert typescript.run("countTokens", counting) == {"input_tokens": used}


def test_models_are_listed_page_by_page(typescript: TypeScript, model: str, gifted: str) -> None:
    listed = {entry["id"]: entry for entry in typescript.run("listModels")}
    assert {model, gifted} <= listed.keys()
    for name in (model, gifted):
        assert listed[name]["type"] == "model"
        assert typescript.run("retrieveModel", name) == listed[name]


def test_an_alias_is_retrieved_as_its_model(typescript: TypeScript, model: str) -> None:
    assert typescript.run("retrieveModel", "scripted")["id"] == model


def check_error(error: dict[str, Any], name: str, status: int, kind: str, message: str) -> None:
    """Check the class of an error, and that the SDK found all that Tandem says in it."""
    assert (error["name"], error["status"], error["type"]) == (name, status, kind)
    assert message in error["message"]
    assert error["requestID"].startswith("req_")


@pytest.mark.parametrize("scenario", ["create", "stream"])
def test_a_refusal_has_the_class_of_its_status(
    typescript: TypeScript, stack: Stack, gateway: Gateway, model: str, scenario: str
) -> None:
    good = body(model, "go")
    check_error(
        typescript.fail(scenario, good, key="sk-tandem-wrong"),
        *("AuthenticationError", 401, "authentication_error", "key"),
    )
    check_error(
        typescript.fail(scenario, good | {"model": "gpt-0"}),
        *("NotFoundError", 404, "not_found_error", "model 'gpt-0' not found"),
    )
    check_error(
        typescript.fail(scenario, good | {"max_tokens": -1}),
        *("BadRequestError", 400, "invalid_request_error", "max_tokens: "),
    )
    lonely = stack.add_model(f"lonely-{scenario}")
    gateway.wait_for_model(lonely, state="missing", engines=0)
    check_error(
        typescript.fail(scenario, good | {"model": lonely}),
        *("ServiceUnavailableError", 503, "api_error", lonely),
    )


def test_a_full_queue_is_an_overload(
    typescript: TypeScript, stack: Stack, gateway: Gateway, client: Client
) -> None:
    name = stack.add_model("full-of-typescript", capacity=1, max_waiting=1)
    asked = body(name, "go")
    with ending(stack.start_worker(name)):
        gateway.wait_for_model(name)
        with client.stream(name, ENDLESS) as running:
            running.wait_for("content_block_delta")
            with RawRequest(gateway.port, stack.key, asked):
                stack.wait_for_waiting(name, 1)
                error = typescript.fail("create", asked)
    check_error(error, "OverloadedError", 529, "overloaded_error", name)


def test_an_engines_failure_ends_the_stream_with_an_error(
    typescript: TypeScript, model: str
) -> None:
    error = typescript.fail("stream", body(model, script(fail_at=1)))
    assert (error["name"], error["type"]) == ("APIError", "api_error")
