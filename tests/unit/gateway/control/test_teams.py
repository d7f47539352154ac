"""The team of the key that calls."""

from __future__ import annotations

import pytest

from gateway.models import Team
from tests.unit.gateway.control.conftest import Caller

pytestmark = pytest.mark.django_db


def test_a_key_sees_its_team(caller: Caller) -> None:
    Team.objects.filter(pk=caller.team.pk).update(
        prepaid=True, daily_spend_cap_micros=5, requests_per_minute=60
    )
    told = caller.get("teams/me").json()
    assert told.pop("created_at").endswith("Z")
    assert told == {
        "id": str(caller.team.pk),
        "name": "blue",
        "zero_data_retention_enabled": False,
        "prepaid": True,
        "daily_spend_cap_micros": 5,
        "monthly_spend_cap_micros": None,
        "limits": {
            "requests_per_minute": 60,
            "input_tokens_per_minute": None,
            "output_tokens_per_minute": None,
            "max_concurrent": None,
        },
    }


def test_a_team_switches_zero_data_retention_for_itself_alone(
    caller: Caller, stranger: Caller
) -> None:
    for enabled in (True, False):
        body = {"zero_data_retention_enabled": enabled}
        response = caller.send("PATCH", "teams/me", body)
        assert response.json()["zero_data_retention_enabled"] is enabled
        assert Team.objects.get(name="blue").zero_data_retention is enabled
    caller.send("PATCH", "teams/me", {"zero_data_retention_enabled": True})
    assert not Team.objects.get(name="red").zero_data_retention


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "zero_data_retention_enabled: This field is required."),
        ({"zero_data_retention_enabled": "perhaps"}, "zero_data_retention_enabled: Must be a"),
        (
            {"zero_data_retention_enabled": True, "prepaid": False},
            "prepaid: there is no such field",
        ),
    ],
)
def test_a_team_changes_nothing_else_of_itself(
    caller: Caller, body: dict[str, object], message: str
) -> None:
    response = caller.send("PATCH", "teams/me", body)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(message)
