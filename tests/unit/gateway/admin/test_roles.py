"""What each role may see and do, through the admin's own pages."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from gateway import roles
from gateway.keys import find_key, mint
from gateway.models import Team
from gateway.roles import BILLING, OPERATOR, OWNER, VIEWER, permissions_of_roles
from inference.models import Model
from jobs.models import LedgerEntry
from tests.unit.gateway.admin.forms import MODELS, model_form
from tests.unit.gateway.admin.operators import sign_in
from tests.unit.gateway.admin.rows import BATCHES, cancel, make_batch, make_row

pytestmark = pytest.mark.django_db

ROLES = (VIEWER, OPERATOR, BILLING, OWNER)
TEAMS = "/admin/gateway/team/"
KEYS = "/admin/gateway/apikey/"
PRICES = "/admin/jobs/price/"
SEEN_BY_ALL = [
    *("gateway/team/", "gateway/apikey/", "inference/model/", "inference/upstream/"),
    *("inference/mcpserver/", "jobs/price/", "jobs/ledgerentry/", "jobs/requestrecord/"),
    *("jobs/batch/", "jobs/work/", "jobs/storedfile/", "jobs/storedresponse/"),
    *("jobs/responsestream/", "jobs/auditseal/", "engines/"),
]
SEEN_BY_OWNERS = [
    *("auth/user/", "auth/group/", "admin/logentry/"),
    *("axes/accesslog/", "axes/accessattempt/"),
]


def held(role: str) -> set[str]:
    found = Permission.objects.filter(group__name=role).select_related("content_type")
    return {f"{each.content_type.app_label}.{each.codename}" for each in found}


def test_the_migration_has_made_the_roles_with_all_that_they_may() -> None:
    existing = [
        f"{each.content_type.app_label}.{each.codename}"
        for each in Permission.objects.select_related("content_type")
    ]
    wanted = permissions_of_roles(existing)
    assert set(wanted) == set(ROLES) == set(Group.objects.values_list("name", flat=True))
    for role in ROLES:
        assert held(role) == wanted[role], role


def test_no_role_is_promised_a_permission_that_does_not_exist() -> None:
    promised = set(roles.RUNS) | set(roles.MONEY) | set(roles.PEOPLE)
    assert promised <= held(OWNER)


def test_each_role_may_do_what_it_says() -> None:
    viewer, operator, billing, owner = (held(role) for role in ROLES)
    assert viewer < operator
    assert viewer < billing
    assert operator | billing < owner
    assert not any(name for name in viewer if ".view_" not in name)
    assert "jobs.view_requestbody" not in viewer | billing
    assert "jobs.add_ledgerentry" not in operator
    assert "gateway.change_apikey" not in billing


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("path", SEEN_BY_ALL)
def test_every_role_sees_how_the_service_is(client: Client, role: str, path: str) -> None:
    sign_in(client, role)
    assert client.get(f"/admin/{path}").status_code == 200


@pytest.mark.parametrize("path", SEEN_BY_OWNERS)
def test_only_owners_see_the_operators(client: Client, path: str) -> None:
    for role in ROLES:
        sign_in(client, role, name=role)
        assert client.get(f"/admin/{path}").status_code == (200 if role == OWNER else 403)


@pytest.mark.parametrize("path", ["", "start/", "search/", "nowhere/", *SEEN_BY_ALL])
def test_without_a_role_every_page_says_so_and_whom_to_ask(client: Client, path: str) -> None:
    sign_in(client, name="ann")
    answer = client.get(f"/admin/{path}")
    assert answer.status_code == 403
    page = answer.content.decode()
    assert "<strong>ann</strong>, an account that has no role yet" in page
    assert "Ask whoever manages the accounts" in page
    assert 'href="/admin/start/"' not in page


def test_without_a_role_people_see_to_their_own_account(client: Client) -> None:
    sign_in(client)
    for path in ("password_change/", "password_change/done/", "two-factor/", "jsi18n/"):
        assert client.get(f"/admin/{path}").status_code == 200, path
    assert client.post("/admin/logout/").status_code == 200
    assert client.get("/admin/").status_code == 302


@pytest.mark.parametrize(("role", "may"), [(VIEWER, 0), (BILLING, 0), (OPERATOR, 1), (OWNER, 1)])
def test_who_may_run_the_service(client: Client, role: str, may: int) -> None:
    sign_in(client, role)
    mint("laptop")
    batch = make_batch()
    make_row(batch, 1)

    client.post(f"{TEAMS}add/", {"name": "red"})
    client.post(f"{MODELS}add/", model_form())
    chosen = {"action": "revoke_selected", "confirmed": "yes"}
    client.post(KEYS, chosen | {"_selected_action": [str(find_key("laptop").pk)]})
    cancel(client, BATCHES, batch)

    batch.refresh_from_db()
    done = [
        Team.objects.filter(name="red").exists(),
        Model.objects.exists(),
        find_key("laptop").revoked_at is not None,
        batch.status == "cancelling",
    ]
    assert done == [bool(may)] * 4


@pytest.mark.parametrize(("role", "may"), [(VIEWER, 0), (OPERATOR, 0), (BILLING, 1), (OWNER, 1)])
def test_who_may_deal_with_money(client: Client, role: str, may: int) -> None:
    sign_in(client, role)
    team = Team.objects.create(name="blue")
    form = {
        "kind": "topup",
        "amount": "1",
        "description": "x",
        "nonce": "7a0f2b1e-5a75-4a3c-9c39-0a1b2c3d4e5f",
    }
    client.post(f"{TEAMS}{team.pk}/credit/", form)
    assert LedgerEntry.objects.exists() == bool(may)
    assert client.get(f"{PRICES}add/").status_code == (200 if may else 403)


def changed(client: Client, team: Team) -> tuple[str, bool, int | None]:
    """Send a form that would change everything of a team; return what came of it."""
    form = {"name": "red", "prepaid": "on", "requests_per_minute": 5}
    client.post(f"{TEAMS}{team.pk}/change/", form)
    team.refresh_from_db()
    return team.name, team.prepaid, team.requests_per_minute


@pytest.mark.parametrize(
    ("role", "becomes"),
    [
        (VIEWER, ("blue", False, None)),
        (OPERATOR, ("red", False, 5)),
        (BILLING, ("blue", True, None)),
        (OWNER, ("red", True, 5)),
    ],
)
def test_a_team_s_money_is_one_matter_and_its_limits_another(
    client: Client, role: str, becomes: tuple[str, bool, int | None]
) -> None:
    sign_in(client, role)
    assert changed(client, Team.objects.create(name="blue")) == becomes


def test_an_operator_adds_a_team_that_may_not_spend_beyond_what_billing_says(
    client: Client,
) -> None:
    sign_in(client, OPERATOR)
    client.post(f"{TEAMS}add/", {"name": "red", "daily_spend_cap_micros": "9", "prepaid": "on"})
    team = Team.objects.get()
    assert (team.name, team.prepaid, team.daily_spend_cap_micros) == ("red", False, None)


def test_a_superuser_needs_no_role(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    for path in (*SEEN_BY_ALL, *SEEN_BY_OWNERS):
        assert client.get(f"/admin/{path}").status_code == 200
