"""A new install says what to do next, and notices what has been done."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.acceptance.stack import Stack, ending, insert_model
from tests.browser import pictures
from tests.browser.accessibility import check_accessibility
from tests.browser.forms import expect_copied, expect_live
from tests.browser.new_install import database_url, start_new_install
from tests.browser.people import SUPERUSER, sign_in
from tests.browser.profiles import OpenProfile

pytestmark = pytest.mark.acceptance


def test_a_new_install_leads_from_step_to_step(open_profile: OpenProfile, stack: Stack) -> None:
    gateway = start_new_install(stack)
    with ending(gateway.server):
        page = open_profile(None, url=gateway.url).open()
        sign_in(page, SUPERUSER)
        expect_live(page)
        steps = page.get_by_role("region", name="First steps")
        current = steps.locator("[aria-current=step]")
        expect(current).to_contain_text("A model in the catalogue")
        expect_copied(current.get_by_role("button", name="Copy the commands"), "fetch_model")
        pictures.keep(page, "first-run-laptop-light")
        check_accessibility(page)

        insert_model(database_url(stack), "demo-8b", backend="scripted", context_tokens=8192)
        page.reload()
        expect(current).to_contain_text("An engine that serves it")
        expect(steps.get_by_role("listitem").first).to_contain_text("done")
        expect_live(page)
        page.close()
