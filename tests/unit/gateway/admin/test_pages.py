"""What all of the admin's pages share."""

from __future__ import annotations

import re
from unittest.mock import Mock

import pytest
from django.apps import apps
from django.contrib import admin
from django.test import Client
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from gateway import nudges
from gateway.admin import pages
from gateway.models import Team
from inference.models import Model
from inference.transport.nudge import Topic
from jobs import ledger, reports
from tests.unit.gateway.admin.forms import MODELS, model_form

pytestmark = pytest.mark.django_db

TEAMS = "/admin/gateway/team/"


PATHS = [
    "",
    "gateway/team/",
    "gateway/apikey/",
    "inference/model/",
    "jobs/price/",
    "jobs/ledgerentry/",
    "jobs/requestrecord/",
    "jobs/auditseal/",
    "jobs/batch/",
    "jobs/work/",
    "jobs/storedfile/",
    "jobs/storedresponse/",
    "jobs/responsestream/",
]
FORMS = ["gateway/team/add/", "gateway/apikey/add/", "inference/model/add/", "jobs/price/add/"]
READ_ONLY = ["jobs/ledgerentry/", "jobs/requestrecord/", "jobs/auditseal/"]


@pytest.mark.parametrize("path", [*PATHS, *FORMS])
def test_every_page_wants_a_login(client: Client, path: str) -> None:
    response = client.get(f"/admin/{path}")
    assert response.status_code == 302
    assert response["location"].startswith("/admin/login/")


@pytest.mark.parametrize("path", [*PATHS, *FORMS])
def test_every_page_is_shown_under_the_project_s_name(admin_client: Client, path: str) -> None:
    page = admin_client.get(f"/admin/{path}")
    assert page.status_code == 200
    assert "Tandem" in page.content.decode()


def test_every_change_nudges_the_gateways(
    admin_client: Client,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    nudge = Mock()
    monkeypatch.setattr(nudges, "nudge", nudge)
    sent = {"post": "yes"}
    chosen = {"action": "delete_selected", "_selected_action": ["big"], **sent}
    for path, data, topic in (
        (f"{TEAMS}add/", {"name": "red"}, Topic.KEYS),
        (f"{MODELS}add/", model_form(), Topic.CATALOGUE),
        (f"{MODELS}add/", model_form(id="big"), Topic.CATALOGUE),
        (f"{MODELS}tiny/change/", model_form(capacity=2), Topic.CATALOGUE),
        (f"{MODELS}tiny/delete/", sent, Topic.CATALOGUE),
        (MODELS, chosen, Topic.CATALOGUE),
    ):
        nudge.reset_mock()
        with django_capture_on_commit_callbacks(execute=True):
            assert admin_client.post(path, data).status_code == 302
        nudge.assert_called_once()
        assert nudge.call_args.args[-1] is topic
    assert not Model.objects.exists()


@pytest.mark.parametrize("path", READ_ONLY)
def test_nobody_adds_changes_or_deletes_a_record_by_hand(admin_client: Client, path: str) -> None:
    for page in ("add/", "1/delete/"):
        assert admin_client.post(f"/admin/{path}{page}", {"post": "yes"}).status_code in (302, 403)
    assert "_selected_action" not in admin_client.get(f"/admin/{path}").content.decode()
    model = admin.site.get_model_admin(apps.get_model(path.strip("/").replace("/", ".")))
    request = Mock(user=Mock(has_perm=lambda permission: True))
    assert model.has_view_permission(request)
    assert not model.has_add_permission(request)
    assert not model.has_change_permission(request)
    assert not model.has_delete_permission(request)


def test_a_long_list_is_counted_no_further_than_it_can_be_paged_through(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    monkeypatch.setattr(reports, "COUNTED_AT_MOST", 3)
    monkeypatch.setattr(pages, "COUNTED_AT_MOST", 3)
    Team.objects.bulk_create(Team(name=f"team {number}") for number in range(9))
    paginator = pages.BoundedPaginator(Team.objects.all(), 2)
    with django_assert_num_queries(1) as queries:
        assert paginator.count == 3
    assert "LIMIT 4" in queries[-1]["sql"]
    assert paginator.num_pages == 2


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("", ["a", "b"]),
        ("?team={a}", ["a"]),
        ("?team=999999", []),
        ("?team=none", []),
    ],
)
def test_a_list_is_narrowed_to_a_team(admin_client: Client, address: str, names: list[str]) -> None:
    teams = {name: Team.objects.create(name=name) for name in ("a", "b")}
    for team in teams.values():
        ledger.top_up(team.pk, 1_500_000, description=f"for {team.name}")
    address = address.format(a=teams["a"].pk)
    page = admin_client.get(f"/admin/jobs/ledgerentry/{address}").content.decode()
    assert [name for name in teams if f"for {name}" in page] == names


@pytest.mark.parametrize(
    "button",
    ["gateway/team/{}/give_credit", "jobs/batch/{}/live_page", "jobs/requestrecord/{}/whole_story"],
)
@pytest.mark.parametrize("name", ["nonsense", "a_2Fb", "99999999999999999999"])
def test_a_button_leads_nowhere_from_what_does_not_exist(
    admin_client: Client, button: str, name: str
) -> None:
    assert admin_client.get(f"/admin/{button.format(name)}/").status_code == 404


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("gateway/apikey", "revoke_selected"),
        ("gateway/team", "delete_selected"),
        ("inference/model", "delete_selected"),
        ("jobs/batch", "cancel"),
        ("auth/user", "forget_factors"),
        ("auth/group", "delete_selected"),
        ("axes/accessattempt", "unlock"),
    ],
)
def test_what_is_no_row_cannot_be_chosen(admin_client: Client, path: str, action: str) -> None:
    sent = {"action": action, "_selected_action": "a\0"}
    assert admin_client.post(f"/admin/{path}/", sent).status_code == 400


def test_no_more_rows_are_chosen_than_a_page_has(admin_client: Client) -> None:
    Team.objects.bulk_create(Team(name=f"team {number}") for number in range(101))
    page = admin_client.get(TEAMS).content.decode()
    assert "_selected_action" in page
    assert "Select all 101" not in page


def test_a_list_without_rows_says_so_and_offers_a_new_one_where_there_can_be_one(
    admin_client: Client,
) -> None:
    nothing = {path: admin_client.get(f"/admin/{path}").content.decode() for path in PATHS[1:]}
    assert all("There is nothing here yet." in page for page in nothing.values())
    offered = [path for path, page in nothing.items() if "</span> Add " in page]
    assert offered == ["gateway/team/", "gateway/apikey/", "inference/model/", "jobs/price/"]
    assert "Nothing matches." in admin_client.get(f"{TEAMS}?q=x").content.decode()


def test_a_list_of_moments_says_that_they_are_in_utc(admin_client: Client) -> None:
    Team.objects.create(name="blue")
    Model.objects.create(id="tiny", context_tokens=1)
    assert "Times are in UTC." in admin_client.get(TEAMS).content.decode()
    assert "Times are in UTC." not in admin_client.get(MODELS).content.decode()


def test_a_no_is_no_fault(admin_client: Client) -> None:
    Team.objects.create(name="blue")
    page = admin_client.get(TEAMS).content.decode()
    (prepaid,) = re.findall(r'<td[^>]+data-label="prepaid">([^<]*)</td>', page)
    assert prepaid.strip() == "No"
