"""Teams in the admin: caps, balances and credit."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from gateway.models import Team
from jobs import ledger
from jobs.models import Account, LedgerEntry, UsageDay
from jobs.quota.client import Settler
from tests.unit.gateway.admin.operators import sign_in

pytestmark = pytest.mark.django_db

TEAMS = "/admin/gateway/team/"
KEY_ID = UUID(int=1)


@pytest.fixture
def team() -> Team:
    return Team.objects.create(name="blue")


def credit_form(client: Client, team: Team, **changes: object) -> dict[str, object]:
    """Open the page that gives credit and fill in its form."""
    page = client.get(f"{TEAMS}{team.pk}/credit/").content.decode()
    nonce = re.search(r'name="nonce" value="([0-9a-f-]{36})"', page)
    assert nonce is not None
    filled = {"kind": "topup", "amount": "10.5", "description": "invoice 7", "nonce": nonce[1]}
    return filled | changes


def test_caps_are_typed_and_shown_in_units(admin_client: Client, team: Team) -> None:
    form = {"name": "blue", "daily_spend_cap_micros": "12.5", "requests_per_minute": 60}
    assert admin_client.post(f"{TEAMS}{team.pk}/change/", form).status_code == 302
    team.refresh_from_db()
    assert (team.daily_spend_cap_micros, team.monthly_spend_cap_micros) == (12_500_000, None)
    page = admin_client.get(f"{TEAMS}{team.pk}/change/").content.decode()
    assert 'value="12.500000"' in page


def test_a_negative_cap_is_refused(admin_client: Client, team: Team) -> None:
    form = {"name": "blue", "daily_spend_cap_micros": "-1"}
    page = admin_client.post(f"{TEAMS}{team.pk}/change/", form).content.decode()
    assert "greater than or equal to 0" in page


def test_the_page_shows_balance_and_recent_entries(admin_client: Client, team: Team) -> None:
    ledger.top_up(team.pk, 2_000_000, description="first <payment>")
    ledger.adjust(team.pk, -500_000, description="correction")
    page = admin_client.get(f"{TEAMS}{team.pk}/change/").content.decode()
    assert "1.500000" in page
    assert "-0.500000" in page
    assert "first &lt;payment&gt;" in page
    assert f"/admin/jobs/ledgerentry/?team={team.pk}" in page


def test_the_list_shows_balances_in_a_fixed_number_of_queries(
    admin_client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(5):
        made = Team.objects.create(name=f"team {number}")
        ledger.top_up(made.pk, (number + 1) * 1_000_000)
    with django_assert_max_num_queries(6):
        page = admin_client.get(TEAMS).content.decode()
    assert all(f">{number}.000000<" in page for number in range(1, 6))


def test_a_top_up_is_booked_under_the_operator_s_name(admin_client: Client, team: Team) -> None:
    form = credit_form(admin_client, team)
    page = admin_client.post(f"{TEAMS}{team.pk}/credit/", form, follow=True).content.decode()
    assert "blue: entry 1, top-up of 10.500000, balance 10.500000 units." in page
    entry = LedgerEntry.objects.get()
    assert (entry.kind, entry.amount_micros, entry.actor) == ("topup", 10_500_000, "admin")
    assert (entry.description, entry.reference) == ("invoice 7", form["nonce"])


def test_the_page_that_gives_credit_says_to_whom(admin_client: Client, team: Team) -> None:
    page = admin_client.get(f"{TEAMS}{team.pk}/credit/").content.decode()
    assert "<h2>Credit for blue</h2>" in page
    title = page[page.index("<h1") : page.index("</h1>")]
    assert f'href="{TEAMS}{team.pk}/change/"' in title


def test_the_same_form_sent_twice_counts_once(admin_client: Client, team: Team) -> None:
    form = credit_form(admin_client, team)
    for _ in range(2):
        assert admin_client.post(f"{TEAMS}{team.pk}/credit/", form).status_code == 302
    assert Account.objects.get().balance_micros == 10_500_000
    assert credit_form(admin_client, team)["nonce"] != form["nonce"]


def test_an_adjustment_may_take(admin_client: Client, team: Team) -> None:
    form = credit_form(admin_client, team, kind="adjustment", amount="-0.000001")
    assert admin_client.post(f"{TEAMS}{team.pk}/credit/", form).status_code == 302
    assert LedgerEntry.objects.get().amount_micros == -1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"amount": "-1"}, "the amount must be from 1 to"),
        ({"amount": "0", "kind": "adjustment"}, "and not 0"),
        ({"amount": "0.0000001"}, "no more than 6 decimal places"),
        ({"description": ""}, "This field is required."),
        ({"kind": "usage"}, "Select a valid choice."),
        ({"nonce": "x"}, "Enter a valid UUID."),
    ],
)
def test_what_the_ledger_would_refuse_is_said_in_the_form(
    admin_client: Client, team: Team, changes: dict[str, object], message: str
) -> None:
    form = credit_form(admin_client, team, **changes)
    page = admin_client.post(f"{TEAMS}{team.pk}/credit/", form)
    assert page.status_code == 200
    assert message in unescape(page.content.decode())
    assert not LedgerEntry.objects.exists()


def test_giving_credit_takes_the_permission_to_add_ledger_entries(
    client: Client, team: Team
) -> None:
    operator = User.objects.create_user("op", is_staff=True)
    for name in ("view_team", "change_team"):
        operator.user_permissions.add(Permission.objects.get(codename=name))
    client.force_login(operator)
    assert client.get(f"{TEAMS}{team.pk}/credit/").status_code == 403
    assert "Give credit" not in client.get(f"{TEAMS}{team.pk}/change/").content.decode()
    operator.user_permissions.add(Permission.objects.get(codename="add_ledgerentry"))
    assert client.get(f"{TEAMS}{team.pk}/credit/").status_code == 200
    assert "Give credit" in client.get(f"{TEAMS}{team.pk}/change/").content.decode()


def test_a_team_s_page_leads_to_a_new_key_of_it(admin_client: Client, team: Team) -> None:
    way = f"{TEAMS}{team.pk}/new_key"
    assert way in admin_client.get(f"{TEAMS}{team.pk}/change/").content.decode()
    response = admin_client.get(way, follow=True)
    assert response.redirect_chain[-1] == (f"/admin/gateway/apikey/add/?team={team.pk}", 302)


@pytest.mark.parametrize(("role", "may"), [("billing", False), ("operator", True)])
def test_a_new_key_is_offered_to_who_may_make_one(
    client: Client, team: Team, role: str, may: bool
) -> None:
    sign_in(client, role)
    assert ("new_key" in client.get(f"{TEAMS}{team.pk}/change/").content.decode()) == may
    response = client.get(f"{TEAMS}{team.pk}/new_key", follow=True)
    assert response.status_code == (200 if may else 403)


def test_there_is_no_credit_for_a_team_that_does_not_exist(admin_client: Client) -> None:
    assert admin_client.get(f"{TEAMS}999/credit/").status_code == 404


def test_the_gateways_are_told_the_balance_after_the_commit(
    admin_client: Client,
    team: Team,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    told: list[tuple[int, int]] = []

    def settle(self: object, team_id: int, state: ledger.AccountState) -> None:
        told.append((team_id, state.balance_micros))

    monkeypatch.setattr(Settler, "settle", settle)
    form = credit_form(admin_client, team)
    with django_capture_on_commit_callbacks(execute=True):
        admin_client.post(f"{TEAMS}{team.pk}/credit/", form)
        assert told == []
    assert told == [(team.pk, 10_500_000)]


def test_the_ledger_s_entries_are_for_who_may_see_them(client: Client, team: Team) -> None:
    ledger.top_up(team.pk, 5, description="invoice 7")
    user = User.objects.create_user("clerk", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_team"))
    client.force_login(user)
    address = f"{TEAMS}{team.pk}/change/"
    assert "invoice 7" not in client.get(address).content.decode()
    user.user_permissions.add(Permission.objects.get(codename="view_ledgerentry"))
    assert "invoice 7" in client.get(address).content.decode()


def use(team: Team, ago: int, cost_micros: int) -> None:
    UsageDay.objects.create(
        team_id=team.pk,
        key_id=KEY_ID,
        day=timezone.now().date() - timedelta(days=ago),
        model="tiny",
        lane="realtime",
        requests=3,
        input_tokens=1_200,
        output_tokens=34,
        cost_micros=cost_micros,
    )


def test_what_a_team_spent_today_yesterday_and_lately_is_at_the_top_of_its_page(
    admin_client: Client, team: Team
) -> None:
    for ago, cost_micros in ((0, 1), (1, 20), (6, 300), (29, 4_000), (30, 50_000)):
        use(team, ago, cost_micros)
    use(Team.objects.create(name="red"), 1, 7)
    page = admin_client.get(f"{TEAMS}{team.pk}/change/").content.decode()
    assert page.index("Yesterday") < page.index('name="name"')
    table = page[page.index("Days in UTC") :]
    spent = re.findall(r'scope="row"><a[^>]+>([^<]+)</a></th><td[^>]*>([^<]+)</td>', table)
    assert spent == [
        ("Today", "0.000001"),
        ("Yesterday", "0.000020"),
        ("Last 7 days", "0.000321"),
        ("Last 30 days", "0.004321"),
    ]
    assert (
        '<td class="amount">3</td><td class="amount">1,200</td><td class="amount">34</td>' in table
    )


def test_each_sum_leads_to_the_ledger_s_entries_of_its_days(
    admin_client: Client, team: Team
) -> None:
    page = admin_client.get(f"{TEAMS}{team.pk}/change/").content.decode()
    today = timezone.now().date()
    yesterday = today - timedelta(days=1)
    address = f"?team={team.pk}&since={yesterday}T00%3A00&until={today}T00%3A00"
    assert address in unescape(page)


def test_what_a_team_spends_is_for_who_may_see_the_ledger(client: Client, team: Team) -> None:
    user = User.objects.create_user("clerk", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_team"))
    client.force_login(user)
    assert "Days in UTC" not in client.get(f"{TEAMS}{team.pk}/change/").content.decode()
