"""What somebody looks for who has never seen the admin: it is where one looks first."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.client import Client, script
from tests.acceptance.stack import Gateway, Stack
from tests.acceptance.teams import Member, make_member
from tests.browser.forms import expect_listed
from tests.browser.looks import SCREENS
from tests.browser.models import listed
from tests.browser.places import LISTS, Place
from tests.browser.traffic import Traffic, api_of, chat_row, submit

pytestmark = pytest.mark.acceptance

_LONG_NAME = "A team whose name is as long as those of some companies, Incorporated"
_LONG_MODEL = "demo-70b-instruct-with-a-name-as-long-as-those-of-quantised-models-fp8"
_SIDEWAYS = """[...document.querySelectorAll("#content *")].filter((element) =>
    element.clientWidth > 0 && element.scrollWidth > element.clientWidth + 1
    && /auto|scroll/.test(getComputedStyle(element).overflowX)
).map((element) => `${element.tagName} ${element.className}: ${element.scrollWidth} px`)"""


@pytest.fixture(scope="module")
def long_names(stack: Stack, gateway: Gateway, traffic: Traffic) -> None:
    """Have long names in the lists, and a batch that nobody runs."""
    member = make_member(stack, name=_LONG_NAME)
    with listed(stack, _LONG_MODEL), api_of(gateway, member) as api:
        submit(api, [chat_row("the-first-row-of-a-long-list", _LONG_MODEL, "Hello")])


@pytest.mark.usefixtures("long_names")
@pytest.mark.parametrize("place", LISTS, ids=lambda place: place.name)
def test_no_list_scrolls_sideways(page: Page, traffic: Traffic, place: Place) -> None:
    page.goto(place.path(traffic))
    for screen in SCREENS:
        page.set_viewport_size({"width": screen.width, "height": screen.height})
        assert page.evaluate(_SIDEWAYS) == []


def test_why_a_request_failed(page: Page, client: Client, member: Member, model: str) -> None:
    client.ask(model, script(tokens=20, fail_at=5))
    page.goto("/admin/")
    page.get_by_role("link", name="Requests", exact=True).click()
    page.get_by_role("link", name="Failed only").click()
    expect(page).to_have_url(re.compile("status__exact=failed"))
    failed = page.get_by_role("row", name=member.team_name)
    expect_listed(page, failed)
    expect(failed).to_contain_text("engine failed")
    failed.locator(".field-story").get_by_role("link").click()
    expect(page.get_by_role("region", name="Outcome")).to_contain_text("could not serve it")


def test_what_a_team_spent_yesterday(page: Page, traffic: Traffic) -> None:
    page.goto("/admin/")
    page.get_by_role("link", name="Teams", exact=True).click()
    page.get_by_role("link", name="Research").first.click()
    expect(page.get_by_role("row", name="Yesterday")).to_be_in_viewport()
    today = page.get_by_role("row", name="Today")
    expect(today).not_to_contain_text("0.000000")
    today.get_by_role("link").click()
    expect(page).to_have_url(re.compile("/admin/jobs/ledgerentry/"))
    expect(page.get_by_role("row", name="Research").first).to_be_visible()


def test_how_a_stuck_batch_is_cancelled(
    page: Page, stack: Stack, gateway: Gateway, member: Member
) -> None:
    with listed(stack, "demo-lost") as model, api_of(gateway, member) as api:
        submit(api, [chat_row("row", model, "Hello")])
        page.goto("/admin/")
        page.get_by_role("link", name="Batches", exact=True).click()
        batch = page.get_by_role("row", name=member.team_name)
        expect(batch).to_contain_text("0 of 1")
        batch.locator(".field-batch").get_by_role("link").click()
        cancel = page.get_by_role("link", name="Cancel this batch…")
        expect(cancel).to_be_in_viewport()
        cancel.click()
        page.get_by_role("button", name="Cancel the batch").click()
        expect(page.get_by_role("region", name="Progress")).to_contain_text("1 of 1 rows")
