"""The OpenAPI document of the control API."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from gateway.control.document import document
from gateway.control.urls import ROUTES
from tests.unit.gateway.control.conftest import Caller, MakeRecord


def test_it_has_every_route_under_its_whole_path() -> None:
    routes = {
        f"/control/v1/{route.pattern}".replace("<str:", "{")
        .replace("<uuid:", "{")
        .replace(">", "}")
        for route in ROUTES
    }
    assert set(document()["paths"]) == routes - {"/control/v1/openapi.json"}


def test_every_operation_is_named_and_wants_a_key() -> None:
    operations = [operation for path in document()["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations) == 13
    for operation in operations:
        assert operation["summary"]
        assert operation["security"] == [{"apiKey": []}, {"bearer": []}]


def test_it_is_served_to_everybody(client: Client) -> None:
    response = client.get("/control/v1/openapi.json")
    assert response.status_code == 200
    assert response.json() == document()


def test_making_it_warns_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    document.cache_clear()
    document()
    assert capsys.readouterr().err == ""


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path",
    [
        *("activity", "activity/models", "activity/{request_id}", "usage/daily", "usage/summary"),
        *("billing/summary", "billing/transactions", "auth/api-keys", "teams/me"),
    ],
)
def test_answers_have_the_keys_that_it_names(
    caller: Caller, make_record: MakeRecord, path: str
) -> None:
    record = make_record(caller)
    caller.send("POST", "billing/topups?nonce=n", {"amount_micros": 1})
    answer = caller.get(path.format(request_id=record.id)).json()
    response = document()["paths"][f"/control/v1/{path}"]["get"]["responses"]["200"]
    check(answer, response["content"]["application/json"]["schema"])


def check(value: Any, schema: dict[str, Any]) -> None:
    """Compare the keys of objects, and of objects inside them."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schema = document()["components"]["schemas"][name]
    if isinstance(value, dict) and "properties" in schema:
        assert value.keys() == schema["properties"].keys()
        for name, inner in value.items():
            check(inner, schema["properties"][name])
    if isinstance(value, list):
        for inner in value:
            check(inner, schema["items"])
