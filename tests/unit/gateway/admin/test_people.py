"""The operators' accounts in the admin."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django_otp.plugins.otp_totp.models import TOTPDevice

from tests.unit.gateway.admin.operators import sign_in

pytestmark = pytest.mark.django_db

ACCOUNTS = "/admin/auth/user/"
PASSWORD = "correct horse battery"


def role(name: str) -> int:
    return Group.objects.get(name=name).pk


def test_an_owner_adds_an_account_with_a_role_and_it_is_let_in(client: Client) -> None:
    sign_in(client, "owner")
    form = {
        "username": "ann",
        "password1": PASSWORD,
        "password2": PASSWORD,
        "usable_password": "true",
        "groups": [role("viewer")],
    }
    assert client.post(f"{ACCOUNTS}add/", form).status_code == 302
    ann = Client()
    ann.post("/admin/login/", {"username": "ann", "password": PASSWORD})
    assert ann.get("/admin/gateway/team/").status_code == 200
    assert "viewer" in client.get(ACCOUNTS).content.decode()


def test_an_owner_makes_no_superuser_and_changes_none(client: Client) -> None:
    owner = sign_in(client, "owner")
    root = User.objects.create_superuser("root", password=PASSWORD)
    form = {"username": "op", "is_active": "on", "is_superuser": "on", "groups": [role("owner")]}
    client.post(f"{ACCOUNTS}{owner.pk}/change/", form)
    owner.refresh_from_db()
    assert not owner.is_superuser

    address = f"{ACCOUNTS}{root.pk}/"
    assert client.post(f"{address}change/", form | {"username": "mine"}).status_code == 403
    changed = {"password1": "other horse battery", "password2": "other horse battery"}
    assert client.post(f"{address}password/", changed).status_code == 403
    assert client.post(f"{address}delete/", {"post": "yes"}).status_code == 403
    root.refresh_from_db()
    assert root.username == "root"
    assert root.check_password(PASSWORD)


def test_several_accounts_are_not_deleted_with_a_superuser_among_them(client: Client) -> None:
    sign_in(client, "owner")
    root = User.objects.create_superuser("root")
    chosen = {"action": "delete_selected", "post": "yes", "_selected_action": [str(root.pk)]}
    client.post(ACCOUNTS, chosen)
    assert User.objects.filter(pk=root.pk).exists()


def reset(client: Client, *users: User) -> str:
    chosen = {
        "action": "forget_factors",
        "confirmed": "yes",
        "_selected_action": [str(user.pk) for user in users],
    }
    return client.post(ACCOUNTS, chosen, follow=True).content.decode()


def test_an_owner_resets_second_factors_but_those_of_superusers(client: Client) -> None:
    sign_in(client, "owner")
    ann = User.objects.create_user("ann", is_staff=True)
    root = User.objects.create_superuser("root")
    for user in (ann, root):
        TOTPDevice.objects.create(user=user, name="phone")
    assert "Second factor reset: ann." in reset(client, ann, root)
    assert [device.user for device in TOTPDevice.objects.all()] == [root]


def test_a_superuser_makes_another(admin_client: Client) -> None:
    ann = User.objects.create_user("ann", is_staff=True)
    form = {"username": "ann", "is_active": "on", "is_superuser": "on"}
    admin_client.post(f"{ACCOUNTS}{ann.pk}/change/", form)
    ann.refresh_from_db()
    assert ann.is_superuser


def test_what_operators_change_is_listed(client: Client) -> None:
    sign_in(client, "owner")
    client.post("/admin/gateway/team/add/", {"name": "red"})
    page = client.get("/admin/admin/logentry/").content.decode()
    assert "red" in page
    assert "Added." in page
    assert client.get("/admin/admin/logentry/?since=2020-01-01T00:00").status_code == 200
