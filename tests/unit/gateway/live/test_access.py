"""Who may watch, by session and by the page that asks."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.test import Client

from gateway.live.access import is_own_page, permissions_of


def session_of(user: User) -> str:
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


@pytest.mark.django_db
def test_an_operator_may_what_the_account_may() -> None:
    user = User.objects.create_user("operator", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_batch"))
    assert permissions_of(session_of(user)) == frozenset({"jobs.view_batch"})
    root = User.objects.create_superuser("root")
    assert {"jobs.view_batch", "jobs.view_ledgerentry"} <= (
        permissions_of(session_of(root)) or set()
    )


@pytest.mark.django_db
def test_nobody_else_may() -> None:
    assert permissions_of("") is None
    assert permissions_of("unknown") is None
    assert permissions_of(session_of(User.objects.create_user("customer"))) is None
    assert permissions_of(session_of(User.objects.create_user("new", is_staff=True))) is None


@pytest.mark.django_db
def test_what_is_taken_from_an_account_counts_at_once() -> None:
    user = User.objects.create_user("operator", password="before", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_batch"))
    sessions = [session_of(user), session_of(user)]
    assert permissions_of(sessions[0]) is not None
    user.set_password("after")
    user.save()
    assert permissions_of(sessions[0]) is None
    session = session_of(user)
    assert permissions_of(session) is not None
    User.objects.filter(pk=user.pk).update(is_staff=False)
    assert permissions_of(session) is None


@pytest.mark.django_db
def test_a_second_factor_that_is_asked_for_must_have_been_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user = User.objects.create_superuser("root")
    session = session_of(user)
    changed: dict[str, Any] = {"ADMIN_TWO_FACTOR": True}
    monkeypatch.setattr(settings, "TANDEM", settings.TANDEM.model_copy(update=changed))
    assert permissions_of(session) is None


@pytest.mark.parametrize(
    ("origin", "host", "is_own"),
    [
        ("http://a.example", "a.example", True),
        ("https://A.example:8443", "a.example:8443", True),
        ("http://a.example:81", "a.example", False),
        ("http://b.example", "a.example", False),
        ("null", "a.example", False),
        (None, "a.example", False),
        (None, "", False),
        ("", "", False),
    ],
)
def test_a_page_must_be_of_the_address_that_it_asks(
    origin: str | None, host: str, is_own: bool
) -> None:
    headers = [(b"host", host.encode())]
    if origin is not None:
        headers.append((b"Origin", origin.encode()))
    assert is_own_page(headers) is is_own


def test_a_trusted_origin_may_ask_whatever_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "CSRF_TRUSTED_ORIGINS", ["https://admin.example"])
    headers = [(b"host", b"10.0.0.1:8080"), (b"origin", b"https://admin.example")]
    assert is_own_page(headers)
