"""What a new customer takes: a team, a key and a price; then its requests, from first to last."""

from __future__ import annotations

import re
import secrets

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.client import Client, script
from tests.acceptance.stack import Gateway, eventually
from tests.browser.forms import choose, expect_said, field, fill, save
from tests.browser.profiles import Profile

pytestmark = pytest.mark.acceptance


def make_team(page: Page, name: str) -> None:
    page.goto("/admin/gateway/team/add/")
    fill(page, Name=name)
    save(page)


def make_key(page: Page, team: str) -> str:
    """Make a key that is called like its team, and return its text, which is shown this once."""
    page.goto("/admin/gateway/apikey/add/")
    fill(page, Name=team)
    choose(page, "team", team)
    page.get_by_role("button", name="Save", exact=True).click()
    shown = page.get_by_text("sk-tandem-").first
    expect(shown).to_be_visible()
    return shown.inner_text().strip()


def make_price(page: Page, model: str) -> None:
    page.goto("/admin/jobs/price/add/")
    field(page, "Model").select_option(model)
    fill(
        page,
        Input="3",
        Input_from_the_cache="0.3",
        Input_written_to_the_cache="3.75",
        Output="15",
    )
    save(page)
    expect_said(page, "A million tokens cost 3")


def test_a_team_gets_a_key_calls_and_is_billed_until_its_key_is_revoked(
    profile: Profile, gateway: Gateway, model: str
) -> None:
    team = f"Orchard {secrets.token_hex(3)}"
    desk = profile.open()
    make_team(desk, team)
    key = make_key(desk, team)
    make_price(desk, model)

    board = profile.open()
    board.goto("/admin/")
    spent = board.get_by_role("region", name="Usage by team").get_by_role("row", name=team)
    expect(board.get_by_text("Live", exact=True)).to_be_visible()
    expect(spent).to_be_hidden()
    client = Client(gateway.url, key)
    with client.http:
        answer = client.ask(model, script(tokens=20))
        assert answer.status_code == httpx.codes.OK
        expect(spent).to_be_visible()

        follow_to_the_ledger(desk, answer.headers["request-id"], team)

        revoke(desk, team)
        refused = eventually(lambda: refusal(client, model), "the key is refused")
        assert refused == httpx.codes.UNAUTHORIZED


def follow_to_the_ledger(page: Page, request_id: str, team: str) -> None:
    page.goto("/admin/requests/")
    page.get_by_role("searchbox", name="The id of a request").fill(request_id)
    page.get_by_role("button", name="Find").click()
    outcome = page.get_by_role("region", name="Outcome")
    expect(outcome).to_contain_text("completed")
    expect(outcome).to_contain_text(team)
    # The clerk writes the entry a moment after the answer, and the page keeps up by itself.
    page.get_by_role("row", name="Usage").get_by_role("link").click()
    expect(page).to_have_url(re.compile("/admin/jobs/ledgerentry/"))
    expect(page.get_by_role("main")).to_contain_text(request_id.removeprefix("req_"))


def revoke(page: Page, key: str) -> None:
    page.goto(f"/admin/gateway/apikey/?q={key}")
    page.get_by_role("link", name=key).first.click()
    page.get_by_role("link", name="Revoke").click()
    expect_said(page, "This cannot be undone")
    page.get_by_role("button", name="Revoke").click()
    expect_said(page, f"Revoked: {key} (")


def refusal(client: Client, model: str) -> int | None:
    """Return the status of a request that was refused."""
    status = client.ask(model, script(tokens=1)).status_code
    return None if status == httpx.codes.OK else status


def test_a_model_gets_another_name(page: Page, client: Client, model: str) -> None:
    page.goto("/admin/inference/model/")
    page.get_by_role("link", name=model).click()
    names = field(page, "Aliases")
    expect(names).to_have_value("demo")
    names.fill("demo\ntides, partner/demo-70b")
    page.get_by_role("button", name="Save", exact=True).click()
    expect_said(page, "Line 2: “tides, partner/demo-70b” is not one name.")
    names.fill("demo\ntides\npartner/demo-70b")
    page.get_by_role("button", name="Save", exact=True).click()
    expect_said(page, "Line 3: “partner/demo-70b” is the id of the model partner/demo-70b already.")
    names.fill("demo\ntides")
    save(page)
    eventually(lambda: client.ask("tides", script(tokens=1)).is_success, "callers may use it")
    page.locator("#searchbar").fill("TIDES")
    page.locator("#searchbar").press("Enter")
    expect(page.get_by_role("row", name="tides")).to_contain_text(model)
