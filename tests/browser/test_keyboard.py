"""The main paths without a mouse: everything is reached by Tab, and the focus is always seen."""

from __future__ import annotations

import secrets

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.stack import Gateway, Stack
from tests.acceptance.teams import Member
from tests.browser.forms import expect_said, field, tab_to
from tests.browser.models import listed
from tests.browser.people import PASSWORD, make_person
from tests.browser.profiles import OpenProfile
from tests.browser.traffic import Traffic, api_of, chat_row, submit

pytestmark = pytest.mark.acceptance


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_signing_in(open_profile: OpenProfile, stack: Stack, model: str) -> None:
    name = f"keyboardist-{secrets.token_hex(3)}"
    make_person(stack, name, superuser=True)
    page = open_profile(None).open()
    page.goto("/admin/")
    # The first field has the focus from the beginning.
    expect(page.get_by_label("Username")).to_be_focused()
    page.keyboard.type(name)
    tab_to(page, page.get_by_label("Password"))
    page.keyboard.type(PASSWORD)
    press(page, "Enter")
    expect(page).to_have_url("/admin/")


def test_making_a_team(page: Page, model: str) -> None:
    page.goto("/admin/")
    tab_to(page, page.get_by_role("link", name="Teams", exact=True))
    press(page, "Enter")
    tab_to(page, page.get_by_title("Add team"))
    press(page, "Enter")
    tab_to(page, field(page, "Name"))
    page.keyboard.type(f"Keyboard {secrets.token_hex(3)}")
    press(page, "Enter")
    expect_said(page, "successfully")


def test_finding_why_a_request_failed(page: Page, traffic: Traffic) -> None:
    page.goto("/admin/requests/")
    expect(page.get_by_role("searchbox", name="The id of a request")).to_be_focused()
    tab_to(page, page.get_by_role("link", name=str(traffic.failed_id)))
    press(page, "Enter")
    expect(page.get_by_role("region", name="Outcome")).to_contain_text("failed")


def test_cancelling_a_batch(page: Page, stack: Stack, gateway: Gateway, member: Member) -> None:
    with listed(stack, "demo-stuck-too") as model, api_of(gateway, member) as api:
        batch = submit(api, [chat_row("row-1", model, "Hello")])
        page.goto(f"/admin/batches/{batch.id}/")
        tab_to(page, page.get_by_role("link", name="Cancel this batch…"))
        press(page, "Enter")
        tab_to(page, page.get_by_role("button", name="Cancel the batch"))
        press(page, "Enter")
        expect_said(page, "Cancelled: a row is cancelled, and none was running.")


def test_the_focus_stays_where_it_is_when_a_page_keeps_up(
    page: Page, stack: Stack, gateway: Gateway, member: Member
) -> None:
    with listed(stack, "demo-stuck-as-well") as model, api_of(gateway, member) as api:
        batch = submit(api, [chat_row("row-1", model, "Hello")])
        page.goto(f"/admin/batches/{batch.id}/")
        results = page.get_by_role("link", name="results")
        expect(results).to_contain_text("so far")
        tab_to(page, results)
        api.batches.cancel(batch.id)
        expect(results).not_to_contain_text("so far")
        expect(results).to_be_focused()


def test_asking_in_the_playground(page: Page, traffic: Traffic, model: str) -> None:
    page.goto("/admin/playground/?model=demo-8b")
    team = page.get_by_label("Team")
    # The one that a test before has chosen for itself, if any.
    tab_to(page, team)
    press(page, "ArrowDown")
    expect(team).not_to_have_value("")
    tab_to(page, page.get_by_label("Your turn"))
    page.keyboard.type("Hello")
    press(page, "Control+Enter")
    expect(page.get_by_role("log")).to_contain_text("end_turn")


def test_the_navigation_can_be_passed_over(page: Page, traffic: Traffic) -> None:
    page.goto("/admin/requests/")
    page.evaluate("document.activeElement.blur()")
    tab_to(page, page.get_by_role("link", name="Skip to the content"))
    press(page, "Enter")
    expect(page.get_by_role("main")).to_be_focused()
