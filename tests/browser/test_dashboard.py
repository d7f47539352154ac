"""The dashboard: live, and back by itself once a gateway that was gone is there again."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, StorageState, expect

from tests.acceptance.client import ENDLESS, Client, script
from tests.acceptance.stack import Stack, ending
from tests.acceptance.teams import Member
from tests.browser.forms import expect_listed, expect_live
from tests.browser.models import listed
from tests.browser.profiles import OpenProfile
from tests.browser.traffic import Traffic

pytestmark = pytest.mark.acceptance

# Of a lane's row: running, waiting, the longest wait, and what ended and was read and written.
_RUNNING = 0
# Of a team's: spend, requests, tokens.
_REQUESTS = 1


def test_requests_show_while_they_run_and_when_they_have_ended(
    page: Page, client: Client, member: Member, model: str
) -> None:
    page.goto("/admin/")
    expect_live(page)
    lane = page.get_by_role("region", name="Lanes").get_by_role("row", name="realtime")
    running = lane.get_by_role("cell").nth(_RUNNING)
    engine = (
        page.get_by_role("region", name="Engines").get_by_role("listitem").filter(has_text=model)
    )
    with client.stream(model, ENDLESS) as stream:
        stream.wait_for("content_block_delta")
        expect(running).to_have_text("1")
        expect(engine).to_contain_text("1 realtime")
    expect(running).to_have_text("0")
    client.ask(model, script(tokens=5))
    usage = page.get_by_role("region", name="Usage by team")
    requests = usage.get_by_role("row", name=member.team_name).get_by_role("cell").nth(_REQUESTS)
    expect(requests).to_have_text("2")


def test_an_error_leads_to_the_requests_it_happened_to(
    page: Page, client: Client, member: Member, model: str
) -> None:
    failed = client.ask(model, script(tokens=20, fail_at=5))
    page.goto("/admin/")
    page.get_by_role("region", name="Errors by kind").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile("/admin/jobs/requestrecord/"))
    found = page.get_by_role("row", name=member.team_name)
    expect_listed(page, found)
    expect(found).to_contain_text(failed.headers["request-id"].removeprefix("req_"))


def test_what_a_team_has_spent_is_picked_by_days(page: Page, traffic: Traffic) -> None:
    page.goto("/admin/")
    usage = page.get_by_role("region", name="Usage by team")
    for days in ("7 days", "30 days", "Today"):
        page.get_by_text(days, exact=True).click()
        expect(usage.get_by_role("row", name="Research")).to_be_visible()
    page.get_by_text("7 days", exact=True).click()
    section = page.get_by_role("region", name="Spend and usage")
    dates = re.compile(r"\d{4}-\d\d-\d\d to \d{4}-\d\d-\d\d in UTC")
    expect(section).to_contain_text(dates)
    page.reload()
    expect(page.get_by_label("7 days")).to_be_checked()
    expect(section).to_contain_text(dates)
    usage.get_by_role("link", name="Research").click()
    expect(page).to_have_url(re.compile(f"/admin/gateway/team/{traffic.team_id}/change/"))


def test_a_model_without_an_engine_is_an_alert_until_it_has_one(
    page: Page, stack: Stack, model: str
) -> None:
    page.goto("/admin/")
    expect_live(page)
    with listed(stack, "demo-lonely") as lonely:
        alert = page.get_by_text(f"No engine serves {lonely}")
        expect(alert).to_be_visible()
        with ending(stack.start_worker(lonely)):
            expect(alert).to_be_hidden()


def test_it_comes_back_when_the_gateway_does(
    open_profile: OpenProfile, signed_in: StorageState, stack: Stack, model: str
) -> None:
    gateway = stack.start_gateway()
    profile = open_profile(signed_in, url=gateway.url)
    profile.watch.expect("WebSocket connection")
    # A font that is first used to say so is asked for when nobody answers.
    profile.watch.expect("net::ERR_CONNECTION")
    page = profile.open()
    page.goto("/admin/")
    expect_live(page)
    gateway.server.kill()
    expect(page.get_by_text("Not connected")).to_be_visible()
    with ending(stack.start_gateway_on(gateway.port).server):
        expect_live(page)
        page.close()
