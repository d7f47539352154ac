"""OpenAI's TypeScript SDK against a live gateway: what it sends is taken, what it gets fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.acceptance.client import script
from tests.acceptance.programs import Program
from tests.acceptance.test_chat import TOOLS, asked
from tests.acceptance.test_tools import CALL, SAID

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]


@pytest.fixture
def node(typescript: Program) -> Program:
    """Return the SDK, of the shared gateway."""
    return replace(typescript, command=("node", "openai.mjs"))


def test_a_completion_is_created(node: Program, model: str) -> None:
    said = node.run("create", asked(model, script(text="Paris."), n=2))
    assert said["model"] == model
    assert [choice["message"]["content"] for choice in said["choices"]] == ["Paris.", "Paris."]
    assert said["usage"]["completion_tokens"] == 2


def test_a_stream_adds_up_to_the_whole_completion(node: Program, model: str) -> None:
    body = asked(model, script(text="The capital of France is Paris."))
    streamed, whole = node.run("stream", body), node.run("create", body)
    assert streamed["heard"]["content"] == "The capital of France is Paris."
    assert streamed["heard"]["reasons"][-1] == "stop"
    (said,), (expected,) = streamed["completion"]["choices"], whole["choices"]
    assert said["message"]["content"] == expected["message"]["content"]
    assert said["finish_reason"] == expected["finish_reason"]
    assert streamed["completion"]["usage"] == whole["usage"]


def test_tools_are_run_by_the_sdk(node: Program, model: str) -> None:
    body = asked(model, script(text="", tool_calls=[CALL], echo_results=True), tools=TOOLS[:1])
    ran = node.run("runTools", body, "18 degrees")
    assert ran == {"content": "18 degrees", "calls": [SAID]}


def test_an_error_has_its_class_and_its_details(node: Program, model: str) -> None:
    error = node.fail("create", asked(model, "hi", temperature=9))
    assert (error["name"], error["status"]) == ("BadRequestError", 400)
    assert (error["param"], error["code"]) == ("temperature", "invalid_value")
    assert error["requestID"].startswith("req_")
