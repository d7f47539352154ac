"""Keys of the admin's own pages."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from gateway.keys import digest, load_principals, mint
from gateway.models import ApiKey, Scope, Team
from gateway.session_keys import Purpose, close_session, open_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def team() -> Team:
    return Team.objects.create(name="blue")


@pytest.mark.parametrize(
    ("purpose", "scope"),
    [(Purpose.PLAYGROUND, Scope.INFERENCE), (Purpose.BATCH_UPLOAD, Scope.BATCHES)],
)
def test_a_key_can_do_what_its_page_does_and_no_more(
    team: Team, purpose: Purpose, scope: Scope
) -> None:
    _, text = open_session(team, purpose, "ann")
    principal = load_principals()[digest(text)]
    assert (principal.team_name, list(principal.scopes)) == ("blue", [scope.value])


def test_a_key_ends_within_the_hour_and_says_what_and_who_made_it(team: Team) -> None:
    key, _ = open_session(team, Purpose.PLAYGROUND, "ann")
    assert key.expires_at is not None
    assert timezone.now() < key.expires_at <= timezone.now() + timedelta(hours=1)
    assert (key.name, key.owner) == ("Playground session", "ann")


def test_a_key_is_revoked_by_who_made_it_once(team: Team) -> None:
    key, text = open_session(team, Purpose.PLAYGROUND, "ann")
    assert not close_session(key.pk, "ben")
    assert digest(text) in load_principals()
    assert close_session(key.pk, "ann")
    assert digest(text) not in load_principals()
    assert not close_session(key.pk, "ann")


def test_no_other_key_is_revoked(team: Team) -> None:
    mint("laptop", "blue", owner="ann")
    assert not close_session(ApiKey.objects.get().pk, "ann")
    assert ApiKey.objects.filter(revoked_at__isnull=True).exists()
