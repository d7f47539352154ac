"""LangChain's ChatAnthropic against a live gateway."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.client import script
from tests.acceptance.programs import Program, install
from tests.acceptance.stack import Gateway, Stack, ending

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

_SOURCE = Path(__file__).parent / "langchain"
# This environment's own pip does it for the other one.
_PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
CALLING = script(
    text="", tool_calls=[{"name": "get_weather", "arguments": ['{"city":', '"Rome"}']}]
)


@pytest.fixture(scope="module")
def langchain(
    tmp_path_factory: pytest.TempPathFactory, stack: Stack, gateway: Gateway
) -> Iterator[Program]:
    """Return LangChain, of the shared gateway, in a virtual environment of its own."""
    folder = tmp_path_factory.mktemp("pip") / "langchain"
    shutil.copytree(_SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    python = str(folder / "venv" / "bin" / "python")
    install(
        "LangChain",
        folder,
        [sys.executable, "-m", "venv", "--without-pip", "venv"],
        [*_PIP, "--python", python, "install", "--no-compile", "-r", "requirements.txt"],
    )
    program = Program(command=(python, "run.py"), folder=folder, url=gateway.url, key=stack.key)
    with closing(program):
        yield program


@pytest.fixture(scope="module")
def thinker(stack: Stack, gateway: Gateway) -> Iterator[str]:
    """Return a model that thinks when asked to."""
    name = stack.add_model("thinks-for-langchain", reasoning="optional")
    with ending(stack.start_worker(name)):
        gateway.wait_for_model(name)
        yield name


def test_it_gets_an_answer(langchain: Program, model: str) -> None:
    message = langchain.run("invoke", {"model": model}, script(text="It is Paris."))
    assert message["content"] == "It is Paris."
    assert message["reason"] == "end_turn"
    usage = message["usage"]
    assert usage["output_tokens"] == 3
    assert usage["total_tokens"] == usage["input_tokens"] + 3


def test_a_stream_adds_up_to_the_answer(langchain: Program, model: str) -> None:
    said = script(text="It is Paris.")
    streamed = langchain.run("stream", {"model": model}, said)
    assert streamed["pieces"] > 3
    whole = langchain.run("invoke", {"model": model}, said)
    for message in (streamed["message"], whole):
        # LangChain counts a stream's cache by lifetime only in a whole answer.
        message["usage"] = {
            name: message["usage"][name] for name in ("input_tokens", "output_tokens")
        }
    assert streamed["message"] == whole


def test_a_calls_result_goes_back_to_the_model(langchain: Program, model: str) -> None:
    turns = langchain.run("use_tools", {"model": model}, CALLING, script(text="Mild."))
    assert turns["called"]["calls"] == [{"name": "get_weather", "args": {"city": "Rome"}}]
    assert turns["called"]["reason"] == "tool_use"
    assert turns["results"] == ["18 degrees in Rome"]
    assert turns["answered"]["content"] == "Mild."


def test_thinking_is_a_block(langchain: Program, thinker: str) -> None:
    fields = {"model": thinker, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    message = langchain.run("invoke", fields, script(thinking="Hm.", text="Yes."))
    assert message["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "Yes."},
    ]


def test_an_error_has_its_class(langchain: Program) -> None:
    error = langchain.fail("invoke", {"model": "gpt-0"}, "go")
    # LangChain's own kind of the SDK's NotFoundError.
    assert (error["name"], error["status"]) == ("AnthropicModelNotFoundError", 404)
    assert "model 'gpt-0' not found" in error["message"]


@pytest.mark.engine
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_an_answer_is_parsed_into_a_class(langchain: Program, real_model: str, method: str) -> None:
    fields: dict[str, Any] = {"model": real_model, "max_tokens": 200, "temperature": 0}
    city = langchain.run("parse", fields, "Is Paris the capital of France?", method)
    assert city["name"] in ("Paris", "Rome")
    assert isinstance(city["is_capital"], bool)


@pytest.mark.engine
def test_a_real_model_is_made_to_call(langchain: Program, real_model: str) -> None:
    fields: dict[str, Any] = {"model": real_model, "max_tokens": 100, "temperature": 0}
    turns = langchain.run("use_tools", fields, "What is the weather in Rome?", "In words, please.")
    (call,) = turns["called"]["calls"]
    assert call["name"] == "get_weather"
    assert turns["results"] == [f"18 degrees in {call['args']['city']}"]
    assert turns["answered"]["usage"]["output_tokens"] > 0
