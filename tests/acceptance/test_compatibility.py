"""What people who move here rely on and no other page of tests shows."""

from __future__ import annotations

import anthropic
import pytest

from tests.acceptance.client import Client, script
from tests.acceptance.conftest import MakeClient
from tests.acceptance.stack import Gateway, Stack, eventually

pytestmark = pytest.mark.acceptance


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
    stack: Stack, make_client: MakeClient, model: str
) -> None:
    strict = stack.start_gateway(UNKNOWN_FIELDS="reject")
    strict.wait_for_model(model)
    client = make_client(strict)
    refused = client.ask(model, "go", container="c")
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("container: ")
    assert client.ask(model, script(text="Yes."), service_tier="flex").status_code == 200


def test_a_vendors_model_name_is_known_only_once_the_operator_says_so(
    stack: Stack, client: Client
) -> None:
    name = "claude-sonnet-4-5"
    assert client.ask(name, "go").status_code == 404
    stack.add_model("stands-in", aliases=[name])
    eventually(
        lambda: client.http.get(f"/v1/models/{name}").status_code == 200, "the alias is known"
    )
