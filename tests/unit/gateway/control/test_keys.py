"""A team's keys."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from gateway import nudges
from gateway.keys import find_live_key, mint
from gateway.models import ApiKey
from inference.errors import TandemError
from inference.models import Model
from inference.transport.nudge import Topic
from jobs.models import KeyUse
from tests.unit.gateway.control.conftest import Caller

pytestmark = pytest.mark.django_db


def make(caller: Caller, **body: Any) -> Any:
    return caller.send("POST", "auth/api-keys", {"name": "robot", **body})


def test_a_key_is_made_and_its_text_shown_this_once(caller: Caller) -> None:
    Model.objects.create(id="Tiny", context_tokens=1)
    response = make(
        caller,
        owner="ann",
        scopes=["read", "inference"],
        allowed_models=["tiny"],
        expires_at="2099-01-01T00:00:00Z",
        limits={"requests_per_minute": 60, "max_concurrent": None},
    )
    assert response.status_code == 201
    made = response.json()
    plaintext = made.pop("plaintext")
    key = find_live_key(plaintext)
    assert key.team == caller.team
    assert made["id"] == str(key.id)
    assert plaintext.startswith(made["prefix"])
    assert made["scopes"] == key.scopes == ["inference", "read"]
    assert made["allowed_models"] == key.allowed_models == ["Tiny"]
    assert made["expires_at"] == "2099-01-01T00:00:00Z"
    assert made["limits"]["requests_per_minute"] == key.requests_per_minute == 60
    assert made["limits"]["max_concurrent"] is None
    listed = caller.get("auth/api-keys").content.decode()
    assert plaintext not in listed
    assert made["id"] in listed


def test_a_key_is_made_with_a_name_alone(caller: Caller) -> None:
    made = make(caller).json()
    assert made["scopes"] == ["inference", "batches", "read"]
    assert (made["allowed_models"], made["expires_at"], made["owner"]) == ([], None, "")
    assert make(caller, scopes=None, limits={}).status_code == 400


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": ""}, "name: This field may not be blank."),
        ({"name": "x" * 201}, "name: Ensure this field has no more than 200 characters."),
        ({"scopes": []}, "scopes: This list may not be empty."),
        ({"scopes": ["root"]}, 'scopes.0: "root" is not a valid choice.'),
        ({"allowed_models": ["unknown"]}, "allowed_models: 'unknown' is not in the catalogue"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at: must lie in the future"),
        ({"limits": {"max_concurrent": 0}}, "limits.max_concurrent: Ensure this value"),
        ({"limits": {"rpm": 1}}, "limits.rpm: there is no such field"),
        ({"scope": ["read"]}, "scope: there is no such field"),
    ],
)
def test_a_wrong_key_is_refused_with_the_field_s_name(
    caller: Caller, body: dict[str, Any], message: str
) -> None:
    response = make(caller, **body)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(message)
    assert ApiKey.objects.count() == 1


def test_a_revoked_key_stays_listed_and_works_no_longer(caller: Caller) -> None:
    made = make(caller).json()
    for _ in range(2):
        response = caller.send("DELETE", f"auth/api-keys/{made['id']}")
        assert (response.status_code, response.content) == (204, b"")
    with pytest.raises(TandemError):
        find_live_key(made["plaintext"])
    listed = {item["id"]: item for item in caller.get("auth/api-keys").json()["items"]}
    assert listed[made["id"]]["revoked_at"] is not None
    assert listed[str(caller.key.id)]["revoked_at"] is None


def test_a_key_may_revoke_itself(caller: Caller) -> None:
    assert caller.send("DELETE", f"auth/api-keys/{caller.key.id}").status_code == 204
    assert caller.get("auth/api-keys").status_code == 401


def test_keys_are_listed_page_by_page_with_their_last_use(
    caller: Caller, stranger: Caller, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(4):
        mint(f"key {number}", "blue")
    KeyUse.objects.create(key_id=caller.key.id, last_used_at=datetime(2026, 8, 7, tzinfo=UTC))
    with django_assert_num_queries(4):
        page = caller.get("auth/api-keys").json()
    assert (page["page"], page["page_size"], page["total"]) == (1, 25, 5)
    assert [item["name"] for item in page["items"]] == [
        *(f"key {number}" for number in (3, 2, 1, 0)),
        "laptop",
    ]
    assert page["items"][-1]["last_used_at"] == "2026-08-07T00:00:00Z"
    assert page["items"][0]["last_used_at"] is None
    second = caller.get("auth/api-keys", page=2, page_size=2).json()
    assert [item["name"] for item in second["items"]] == ["key 1", "key 0"]
    assert [item["name"] for item in stranger.get("auth/api-keys").json()["items"]] == ["stranger"]


def test_gateways_are_told_of_each_change_after_the_commit(
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    nudge = Mock()
    monkeypatch.setattr(nudges, "nudge", nudge)
    made = make(caller).json()
    for method, path, body in (
        ("POST", "auth/api-keys", {"name": "x"}),
        ("DELETE", f"auth/api-keys/{made['id']}", None),
        ("PATCH", "teams/me", {"zero_data_retention_enabled": True}),
    ):
        nudge.reset_mock()
        with django_capture_on_commit_callbacks(execute=True):
            assert caller.send(method, path, body).status_code < 300
            nudge.assert_not_called()
        nudge.assert_called_once()
        assert nudge.call_args.args[-1] is Topic.KEYS
