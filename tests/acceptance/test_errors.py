"""Errors over a live gateway: each has Anthropic's envelope, a request id and the right status."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.acceptance.client import Client, body
from tests.acceptance.conftest import MakeClient
from tests.acceptance.stack import Gateway, Stack, eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

JSON = {"content-type": "application/json"}


def told_id(response: httpx.Response) -> str:
    """Return the id that an error's body has: an upstream's own, where its words are passed on."""
    headers = response.headers
    found: str = headers.get("tandem-upstream-request-id", headers["request-id"])
    return found


def check(response: httpx.Response, status: int, kind: str, message: str) -> None:
    """Check an error, and that it names what is wrong."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["request-id"].startswith("req_")
    answer = response.json()
    assert answer["type"] == "error"
    assert answer["request_id"] == told_id(response)
    assert answer["error"]["type"] == kind
    assert message in answer["error"]["message"]


def good(model: str, **changes: Any) -> dict[str, Any]:
    """Return a request that would be answered, with changes; None takes a field out."""
    asked = body(model, "go") | changes
    return {name: value for name, value in asked.items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tokens": 0}, "max_tokens: "),
        ({"max_tokens": -1}, "max_tokens: "),
        ({"max_tokens": "5"}, "max_tokens: "),
        ({"max_tokens": 1.5}, "max_tokens: "),
        ({"max_tokens": True}, "max_tokens: "),
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"max_tokens": 100_000}, "exceed context limit: 1 + 100000 > 100000"),
        ({"messages": None}, "messages: Field required"),
        ({"messages": []}, "messages: at least one message is required"),
        ({"messages": "hi"}, "messages: "),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages.0.role: "),
        ({"messages": [{"role": "user"}]}, "messages.0.content: Field required"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages.0.content: "),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content: "),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]},
            "messages.0.content.0.text: text content blocks must be non-empty",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "hologram"}]}]},
            "messages.0.content.0: Unsupported content block type: 'hologram'",
        ),
        ({"system": 5}, "system: "),
        ({"system": [{"type": "text", "text": 5}]}, "system.0.text: "),
        ({"temperature": "hot"}, "temperature: "),
        ({"temperature": -1}, "temperature: "),
        ({"top_p": 0}, "top_p: "),
        ({"top_k": "all"}, "top_k: "),
        ({"stream": "yes"}, "stream: "),
        ({"stop_sequences": "STOP"}, "stop_sequences: "),
        ({"stop_sequences": [""]}, "stop_sequences.0: "),
        ({"messages": [{"role": "user", "content": "x" * 400_001}]}, "prompt is too long: 100001 "),
    ],
)
def test_a_wrong_field_is_named(
    client: Client, model: str, changes: dict[str, Any], message: str
) -> None:
    response = client.http.post("/v1/messages", json=good(model, **changes))
    check(response, 400, "invalid_request_error", message)


@pytest.mark.parametrize(
    ("content", "headers", "message"),
    [
        (b"", JSON, "body is empty"),
        (b"{", JSON, "not valid JSON"),
        (b"[]", JSON, "must be a JSON object"),
        (b'{"model": "\xff"}', JSON, "not valid UTF-8"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, JSON, "nested deeper than 64 levels"),
        (b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", JSON, "nested deeper"),
        (b"{}", {"content-type": "text/plain"}, "Content-Type must be application/json"),
        (b"{}", {}, "Content-Type must be application/json"),
        (b"{}", JSON | {"content-encoding": "gzip"}, "Content-Encoding must be identity"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(
    client: Client, content: bytes, headers: dict[str, str], message: str
) -> None:
    response = client.http.post("/v1/messages", content=content, headers=headers)
    check(response, 400, "invalid_request_error", message)


def test_an_unknown_model_is_not_found(client: Client) -> None:
    check(client.ask("gpt-0", "go"), 404, "not_found_error", "model 'gpt-0' not found")
    check(client.http.get("/v1/models/gpt-0"), 404, "not_found_error", "model 'gpt-0' not found")


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1", "/nothing", "/v1/messages/5"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_not_found(client: Client, method: str, path: str) -> None:
    check(client.http.request(method, path), 404, "not_found_error", path)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/messages", "POST"),
        ("DELETE", "/v1/messages", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("PUT", "/healthz", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_refused_with_those_that_are_allowed(
    client: Client, method: str, path: str, allow: str
) -> None:
    response = client.http.request(method, path)
    check(response, 405, "invalid_request_error", method)
    assert response.headers["allow"] == allow


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-api-key": ""},
        {"x-api-key": "sk-tandem-wrong"},
        {"authorization": "Bearer sk-tandem-wrong"},
        {"authorization": "Basic c2s="},
    ],
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/messages"), ("GET", "/v1/models")])
def test_without_a_valid_key_nothing_is_answered(
    gateway: Gateway, method: str, path: str, headers: dict[str, str]
) -> None:
    response = httpx.request(method, gateway.url + path, headers=headers)
    check(response, 401, "authentication_error", "api")


def test_a_revoked_key_is_soon_refused(stack: Stack, client: Client, engine_model: str) -> None:
    client.http.headers["x-api-key"] = stack.mint("short-lived")
    assert client.ask(engine_model, "go").status_code == 200
    stack.manage("revoke_api_key", "short-lived")
    eventually(lambda: client.ask(engine_model, "go").status_code == 401, "the key is refused")


def test_a_body_that_is_too_large_is_refused(
    stack: Stack, make_client: MakeClient, engine_model: str
) -> None:
    client = make_client(stack.start_gateway(MAX_BODY_BYTES="2000"))
    response = client.ask(engine_model, "x" * 2000)
    check(response, 413, "request_too_large", "more than the maximum of 2000")
