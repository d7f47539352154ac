"""The ways in which people write addresses, models and keys."""

from __future__ import annotations

from urllib.parse import quote

import anthropic
import openai
import pytest

from tests.acceptance.client import Client, body
from tests.acceptance.stack import Gateway, Stack

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages",
        "/v1/messages/",
        "/v1/messages?beta=true",
        "/v1/v1/messages",
        "/messages",
        "/anthropic/v1/messages",
    ],
)
def test_a_message_is_answered_at_every_spelling_of_the_address(
    client: Client, model: str, path: str
) -> None:
    assert client.http.post(path, json=body(model, "go")).status_code == 200


@pytest.mark.parametrize("base", ["", "/v1", "/anthropic"])
def test_the_official_sdk_takes_every_base_url(
    stack: Stack, gateway: Gateway, model: str, base: str
) -> None:
    with anthropic.Anthropic(base_url=gateway.url + base, api_key=stack.key) as sdk:
        answer = sdk.messages.create(
            model=model, max_tokens=5, messages=[{"role": "user", "content": "go"}]
        )
    assert answer.usage.output_tokens == 5


@pytest.mark.parametrize("name", ["vendor/scripted-1", "VENDOR/SCRIPTED-1", "scripted", "Scripted"])
def test_a_model_is_found_by_id_and_alias_whatever_the_case(
    client: Client, engine_model: str, name: str
) -> None:
    response = client.ask(name, "go")
    assert response.status_code == 200
    assert response.json()["model"] == engine_model


@pytest.mark.parametrize("safe", ["/", ""])
def test_a_model_with_a_slash_is_found_raw_and_encoded(
    client: Client, model: str, safe: str
) -> None:
    response = client.http.get(f"/v1/models/{quote(model, safe=safe)}")
    assert response.json()["id"] == model


@pytest.mark.parametrize(
    ("api_key", "authorization", "status"),
    [
        ("{}", None, 200),
        (None, "Bearer {}", 200),
        (None, "bearer {}", 200),
        ("{}", "Bearer wrong", 200),
        ("wrong", "Bearer {}", 401),
    ],
)
def test_a_key_is_taken_from_either_header_and_x_api_key_wins(
    stack: Stack,
    client: Client,
    model: str,
    api_key: str | None,
    authorization: str | None,
    status: int,
) -> None:
    del client.http.headers["x-api-key"]
    given = {"x-api-key": api_key, "authorization": authorization}
    client.http.headers.update(
        {name: value.format(stack.key) for name, value in given.items() if value}
    )
    assert client.ask(model, "go").status_code == status


def test_both_official_sdks_list_and_retrieve_models(
    stack: Stack, gateway: Gateway, model: str
) -> None:
    with anthropic.Anthropic(base_url=gateway.url, api_key=stack.key) as sdk:
        assert model in [row.id for row in sdk.models.list(limit=1)]
        assert sdk.models.retrieve(model).id == model
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=stack.key) as other:
        assert model in [row.id for row in other.models.list()]
        assert other.models.retrieve(model).id == model
