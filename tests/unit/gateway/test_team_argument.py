"""How commands are told of a team."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from gateway.management.team import team_id
from gateway.models import Team
from jobs.models import Account

pytestmark = pytest.mark.django_db


def test_a_team_is_found_by_its_name_and_by_its_id() -> None:
    blue = Team.objects.create(name="blue")
    assert team_id("blue") == team_id(str(blue.pk)) == blue.pk


def test_a_name_that_is_a_number_is_a_name() -> None:
    blue = Team.objects.create(name="blue")
    number = Team.objects.create(name=str(blue.pk))
    assert team_id(str(blue.pk)) == number.pk


def test_a_team_that_was_deleted_is_found_by_its_account() -> None:
    Account.objects.create(team_id=4711)
    assert team_id("4711") == 4711


@pytest.mark.parametrize("text", ["red", "4711", "-1", "", "9" * 30])
def test_a_team_that_never_was_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="there is no team"):
        team_id(text)
