"""A fuzzer that reads the published document finds no answer that the document does not tell.

Every operation is called with data that fits the document, data that does not, and no or wrong
keys; all of it is the same in each run. A request that hangs becomes a 504, which is a failure.
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import httpx
import pytest
import schemathesis
from schemathesis import Case
from schemathesis.checks import CheckContext, CheckFunction, not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from schemathesis.specs.openapi.schemas import OpenApiSchema

from gateway.openapi import examples
from tests.acceptance.client import TIMEOUT_S, Client
from tests.acceptance.stack import Gateway, Stack
from tests.schemas import Document, close_answers

pytestmark = pytest.mark.acceptance

GO = [{"role": "user", "content": "go"}]
# What makes a body of each kind one that is answered, whatever else it says.
ANSWERABLE = {
    "MessagesBody": {"messages": {"const": GO}, "max_tokens": {"const": 20}},
    "CountTokensBody": {"messages": {"const": GO}, "max_tokens": {"const": 20}},
    "ResponsesBody": {
        "input": {"const": "go"},
        "max_output_tokens": {"const": 20},
        "previous_response_id": {"type": "null"},
        "background": {"const": False},
        "background_options": {"type": "null"},
        "metadata": {"type": "null"},
    },
}
BODIES = (*ANSWERABLE, "ChatBody")
# Who takes them: elsewhere it would be the same requests over again.
ANSWERING = [
    "/v1/messages",
    "/v1/messages/batches",
    "/v1/messages/count_tokens",
    "/v1/responses",
    "/v1/responses/input_tokens",
]
# How streams begin and end.
STREAMS = {
    "/v1/messages": ("message_start", {"message_stop"}),
    "/v1/responses": (
        "response.created",
        {"response.completed", "response.incomplete", "response.failed"},
    ),
}
# A schema does not tell which schemas an engine can enforce, or that names must be unique.
HOLD_SCHEMAS = ("tools", "tool_choice", "output_config", "output_format", "text")


@pytest.fixture(scope="module")
def fuzzed(stack: Stack, model: str) -> Gateway:
    """Return a gateway that waits less long than the fuzzer."""
    gateway = stack.start_gateway(REQUEST_TIMEOUT_S=str(TIMEOUT_S / 2))
    gateway.wait_for_model(model)
    return gateway


@pytest.fixture(scope="module")
def document(fuzzed: Gateway, model: str) -> Document:
    """Return the published document, the answers closed and the model known."""
    document: Document = httpx.get(f"{fuzzed.url}/openapi.json").json()
    for body in BODIES:
        document["components"]["schemas"][body]["properties"]["model"] = {"enum": [model]}
    # Who asks to wait does wait.
    events = document["paths"]["/v1/responses/events"]["get"]
    events["parameters"] = [each for each in events["parameters"] if each["name"] != "wait_ms"]
    return close_answers(document)


def load(document: Document, gateway: Gateway, key: str, **generation: Any) -> OpenApiSchema:
    """Return the document as the fuzzer sees it."""
    settings = {
        "seed": 1,
        "base-url": gateway.url,
        "auth": {"openapi": {"apiKey": {"api_key": key}}},
        "request-timeout": TIMEOUT_S,
        # Streams are read to their end.
        "max-stream-events": 10_000,
        "generation": {"deterministic": True, "database": "none", **generation},
        # What one answer holds does not become part of another request: ids differ by run.
        "phases": {
            "fuzzing": {
                "extra-data-sources": {"responses": False},
                "error-feedback": {"enabled": False},
            }
        },
    }
    return schemathesis.openapi.from_dict(document, config=SchemathesisConfig.from_dict(settings))


@pytest.fixture(scope="module")
def published(document: Document, fuzzed: Gateway, stack: Stack) -> OpenApiSchema:
    return load(document, fuzzed, stack.key, **{"max-examples": 14})


@pytest.fixture(scope="module")
def answerable(document: Document, fuzzed: Gateway, stack: Stack) -> OpenApiSchema:
    """Return the document with a conversation that is always right, so that engines are reached."""
    document = deepcopy(document)
    for body, right in ANSWERABLE.items():
        document["components"]["schemas"][body]["properties"] |= right
    return load(document, fuzzed, stack.key, **{"max-examples": 24, "mode": "positive"})


def a_stream_ends(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    """Check that frames are named by what they hold, and that the last one is a last one."""
    if case.path not in STREAMS or not is_stream(response):
        return
    begins, ends = STREAMS[case.path]
    assert response.text.endswith("\n\n")
    frames = [frame for frame in response.text.split("\n\n") if frame.startswith("event: ")]
    for frame in frames:
        name, _, data = frame.removeprefix("event: ").partition("\ndata: ")
        assert json.loads(data)["type"] == name
    assert name_of(frames[0]) == begins
    assert name_of(frames[-1]) in ends


def is_stream(response: Response) -> bool:
    return response.headers.get("content-type", [""])[0].startswith("text/event-stream")


def name_of(frame: str) -> str:
    return frame.removeprefix("event: ").partition("\n")[0]


def not_promised(case: Case[Any]) -> list[CheckFunction]:
    """Return the checks that this request does not call for."""
    checks: list[CheckFunction] = []
    fields = case.body if isinstance(case.body, dict) else {}
    if case.path == "/readyz":
        # Other tests' models may be without an engine.
        checks.append(not_a_server_error)
    if case.path == "/v1/models" and not case.headers.get("anthropic-version"):
        # Only pages have parameters.
        checks.append(negative_data_rejection)
    is_right = fields.get("messages") == GO or fields.get("input") == "go"
    if not is_right or any(fields.get(name) is not None for name in HOLD_SCHEMAS):
        checks.append(positive_data_acceptance)
    return checks


def call(case: Case[Any]) -> None:
    case.call_and_validate(additional_checks=[a_stream_ends], excluded_checks=not_promised(case))


@schemathesis.pytest.from_fixture("published").parametrize()
def test_every_answer_is_one_that_the_document_tells(case: Case[Any]) -> None:
    call(case)


@schemathesis.pytest.from_fixture("answerable").include(method="POST", path=ANSWERING).parametrize()
def test_every_request_that_fits_the_document_is_answered(case: Case[Any]) -> None:
    call(case)


def test_the_document_is_sent_only_to_who_lacks_it(client: Client) -> None:
    del client.http.headers["x-api-key"]
    first = client.http.get("/openapi.json")
    again = client.http.get("/openapi.json", headers={"if-none-match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    # The connection is still good.
    assert client.http.get("/openapi.json").json() == first.json()


@pytest.mark.engine
@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("/v1/messages", example["value"]) for example in examples.MESSAGES.values()),
        *(("/v1/messages/count_tokens", example["value"]) for example in examples.COUNT.values()),
    ],
    ids=[*examples.MESSAGES, "count"],
)
def test_every_example_of_a_request_works_as_it_stands(
    client: Client, real_model: str, path: str, body: dict[str, Any]
) -> None:
    assert body["model"] == real_model
    response = client.http.post(path, json=body)
    assert response.status_code == 200, response.text
