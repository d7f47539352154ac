"""Who gets in, and what each role may do there."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page, StorageState, expect

from tests.acceptance.stack import Stack
from tests.browser.accessibility import check_accessibility, check_width
from tests.browser.looks import SCHEMES, SCREENS, Scheme, Screen
from tests.browser.people import SUPERUSER, fill_in, make_person, sign_in
from tests.browser.profiles import OpenProfile

pytestmark = pytest.mark.acceptance

_FORBIDDEN = "status of 403"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_the_door_is_there_for_everybody(
    open_profile: OpenProfile, screen: Screen, scheme: Scheme
) -> None:
    page = open_profile(None, screen, scheme).open()
    page.goto("/admin/")
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    check_width(page)
    check_accessibility(page)


def test_a_wrong_password_is_refused(open_profile: OpenProfile, signed_in: StorageState) -> None:
    page = open_profile(None).open()
    fill_in(page, SUPERUSER, "wrong")
    expect(page.get_by_text(re.compile("correct username and password"))).to_be_visible()
    check_accessibility(page)


def test_people_leave(open_profile: OpenProfile, stack: Stack) -> None:
    name = f"leaver-{secrets.token_hex(3)}"
    make_person(stack, name, superuser=True)
    page = open_profile(None).open()
    sign_in(page, name)
    # The theme has it in the account's menu.
    page.get_by_text(name).first.click()
    page.get_by_text("Log out").first.click()
    expect(page).not_to_have_url("/admin/")
    page.goto("/admin/")
    expect(page.get_by_label("Username")).to_be_visible()


def test_without_a_role_there_is_nothing_but_whom_to_ask(
    open_profile: OpenProfile, stack: Stack
) -> None:
    name = f"newcomer-{secrets.token_hex(3)}"
    make_person(stack, name)
    profile = open_profile(None)
    profile.watch.expect(_FORBIDDEN)
    page = profile.open()
    sign_in(page, name)
    expect(page.get_by_text("Ask whoever manages the accounts")).to_be_visible()
    check_width(page)
    check_accessibility(page)


@pytest.fixture
def sign_in_as(open_profile: OpenProfile, stack: Stack) -> Callable[[str], Page]:
    """Return a function that opens the admin as somebody with one role."""

    def open_as(role: str) -> Page:
        name = f"{role}-{secrets.token_hex(3)}"
        make_person(stack, name, role)
        profile = open_profile(None)
        profile.watch.expect(_FORBIDDEN)
        page = profile.open()
        sign_in(page, name)
        return page

    return open_as


@pytest.mark.parametrize(
    ("role", "allowed", "refused"),
    [
        ("viewer", ["/admin/jobs/batch/"], ["/admin/gateway/team/add/", "/admin/playground/"]),
        ("operator", ["/admin/inference/model/add/"], ["/admin/auth/user/add/"]),
        ("billing", ["/admin/jobs/price/add/"], ["/admin/inference/model/add/"]),
        ("owner", ["/admin/auth/user/add/", "/admin/jobs/price/add/"], []),
    ],
)
def test_a_role_opens_its_own_doors_only(
    sign_in_as: Callable[[str], Page], role: str, allowed: list[str], refused: list[str]
) -> None:
    page = sign_in_as(role)
    for path in allowed:
        answer = page.goto(path)
        assert answer is not None
        assert answer.ok, path
    for path in refused:
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == httpx.codes.FORBIDDEN, path
        check_accessibility(page)
    page.goto("/admin/")
    expect(page.get_by_role("heading", name="Engines")).to_be_visible()
