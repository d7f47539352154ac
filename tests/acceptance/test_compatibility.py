"""What people who move here rely on and no other page of tests shows."""

from __future__ import annotations

import secrets
from typing import Any

import anthropic
import pytest

from inference.request import Lane
from tests.acceptance.client import ENDLESS, Client, RawRequest, body, script
from tests.acceptance.conftest import MakeClient
from tests.acceptance.stack import Gateway, Stack, ending, eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

# The requests that the three systems' own documentation shows, but for the model's name.
SPARK = {"max_tokens": 256, "messages": [{"role": "user", "content": "Hello!"}]}
SPICE = {"max_tokens": 1024, "messages": [{"role": "user", "content": "Hello!"}]}
SFERENCE = {
    "max_tokens": 1024,
    "messages": [{"role": "user", "content": "Say hello in one sentence."}],
}
SFERENCE_STREAM = {
    "max_tokens": 1024,
    "stream": True,
    "messages": [{"role": "user", "content": "Count to five."}],
}
SFERENCE_TOOLS = {
    "max_tokens": 1024,
    "messages": [{"role": "user", "content": "What files are in the repo root?"}],
    "tools": [
        {
            "name": "list_files",
            "description": "List files in a directory",
            "input_schema": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        }
    ],
}


@pytest.mark.parametrize(
    "asked",
    [SPARK, SPICE, SFERENCE, SFERENCE_STREAM, SFERENCE_TOOLS],
    ids=["Spark", "Spice", "sference", "sference's stream", "sference's tools"],
)
def test_the_requests_of_their_documentation_are_answered(
    client: Client, model: str, asked: dict[str, Any]
) -> None:
    with client.http.stream("POST", "/v1/messages", json={"model": model} | asked) as response:
        assert response.status_code == 200
        assert "tandem-ignored-fields" not in response.headers
        response.read()
    assert "Jack" in response.text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"anthropic-version": "2023-06-01"},
        {"anthropic-version": "1999-12-31"},
        {"anthropic-beta": "interleaved-thinking-2025-05-14,nobody-knows-this"},
    ],
    ids=["none", "version", "other version", "betas"],
)
def test_any_version_and_any_beta_is_accepted(
    client: Client, model: str, headers: dict[str, str]
) -> None:
    client.http.headers.update(headers)
    response = client.ask(model, script(text="Yes."), temperature=0.5, top_p=0.5, top_k=5)
    assert response.status_code == 200
    assert response.json()["content"] == [{"type": "text", "text": "Yes."}]


def test_the_official_sdk_may_send_the_key_as_a_bearer_token(
    stack: Stack, gateway: Gateway, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with anthropic.Anthropic(base_url=gateway.url, auth_token=stack.key) as sdk:
        answer = sdk.messages.create(
            model=model, max_tokens=5, messages=[{"role": "user", "content": "go"}]
        )
    assert answer.usage.output_tokens == 5


def test_a_messages_id_is_that_of_its_request(client: Client, model: str) -> None:
    whole = client.ask(model, script(text="Yes."))
    assert whole.json()["id"] == whole.headers["request-id"].replace("req_", "msg_")
    with client.stream(model, script(text="Yes.")) as stream:
        start = stream.wait_for("message_start").data
        stream.rest()
    request_id = stream.response.headers["request-id"]
    assert start["message"]["id"] == request_id.replace("req_", "msg_")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_what_is_ignored_is_listed_and_what_only_tunes_serving_is_not(
    client: Client, model: str, streamed: bool
) -> None:
    fields = {"metadata": {"user_id": "u"}, "service_tier": "flex", "container": "c", "zeal": 1}
    with client.stream(model, script(text="Yes."), stream=streamed, **fields) as stream:
        assert stream.response.status_code == 200
        assert stream.response.headers["tandem-ignored-fields"] == "container, zeal"
        stream.response.read()


def test_an_operator_can_have_unknown_fields_refused(
    stack: Stack, make_client: MakeClient, engine_model: str
) -> None:
    strict = stack.start_gateway(UNKNOWN_FIELDS="reject")
    strict.wait_for_model(engine_model)
    client = make_client(strict)
    refused = client.ask(engine_model, "go", container="c")
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("container: ")
    assert client.ask(engine_model, script(text="Yes."), service_tier="flex").status_code == 200


def test_a_vendors_model_name_is_known_only_once_the_operator_says_so(
    stack: Stack, client: Client
) -> None:
    name = "claude-sonnet-4-5"
    assert client.ask(name, "go").status_code == 404
    stack.add_model("stands-in", aliases=[name])
    eventually(
        lambda: client.http.get(f"/v1/models/{name}").status_code == 200, "the alias is known"
    )


def test_a_callers_key_goes_no_further_than_the_gateway(
    stack: Stack, gateway: Gateway, client: Client
) -> None:
    model = stack.add_model("keeps-keys", capacity=1)
    with ending(stack.start_worker(model)):
        gateway.wait_for_model(model)
        with client.stream(model, ENDLESS) as running:
            running.wait_for("content_block_delta")
            with RawRequest(gateway.port, stack.key, body(model, "Say hello.")):
                stack.wait_for_waiting(model, 1)
                queued = stack.redis.xrange(stack.keys.queue(model, Lane.REALTIME))
    assert b"Say hello." in repr(queued).encode()
    assert stack.key not in repr(queued)


def test_a_count_needs_an_engine_that_is_up(
    stack: Stack, gateway: Gateway, sdk: anthropic.Anthropic
) -> None:
    lonely = stack.add_model("counts-nothing")
    gateway.wait_for_model(lonely, state="missing", engines=0)
    with pytest.raises(anthropic.APIStatusError, match=lonely) as caught:
        sdk.with_options(max_retries=0).messages.count_tokens(
            model=lonely, messages=[{"role": "user", "content": "go"}]
        )
    assert (caught.value.status_code, caught.value.type) == (503, "api_error")


@pytest.mark.engine
def test_bug_55_who_left_and_asks_again_finds_the_prompt_in_the_cache(
    stack: Stack, client: Client, real_model: str
) -> None:
    facts = " ".join(f"Fact {number} is {number * number}." for number in range(80))
    asked = f"These are the facts of {secrets.token_hex(8)}. {facts}"
    with client.stream(real_model, asked, max_tokens=500) as stream:
        stream.wait_for("content_block_delta")
    stack.wait_for_in_flight(real_model, 0)
    usage = client.ask(real_model, asked, max_tokens=1).json()["usage"]
    assert usage["cache_read_input_tokens"] > usage["input_tokens"]
