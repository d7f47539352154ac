"""Every page is there for everybody: on a laptop and a phone, by day and by night."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from playwright.sync_api import Browser, StorageState, expect

from tests.acceptance.stack import Gateway
from tests.browser import pictures
from tests.browser.accessibility import check_accessibility, check_contrast, check_width
from tests.browser.looks import LAPTOP, SCHEMES, SCREENS, Scheme
from tests.browser.places import PLACES, Place
from tests.browser.profiles import Profile, new_profile
from tests.browser.traffic import Traffic

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def profiles(
    browser: Browser, gateway: Gateway, signed_in: StorageState
) -> Iterator[dict[Scheme, Profile]]:
    """Return a profile for the day and one for the night, which keep what they have loaded."""
    with ExitStack() as cleanup:
        yield {
            scheme: cleanup.enter_context(
                new_profile(browser, gateway.url, signed_in, LAPTOP, scheme)
            )
            for scheme in SCHEMES
        }


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_a_page_can_be_used_by_everybody(
    profiles: dict[Scheme, Profile], traffic: Traffic, place: Place, scheme: Scheme
) -> None:
    with closing(profiles[scheme].open()) as page:
        page.goto(place.path(traffic))
        if place.press:
            page.get_by_role("button", name=place.press).click()
        expect(page.get_by_role("main")).to_contain_text(place.shows)
        for screen in SCREENS:
            page.set_viewport_size({"width": screen.width, "height": screen.height})
            pictures.keep(page, f"{place.name}-{screen.name}-{scheme}")
            check_width(page)
            # By night a page differs in nothing but its colours.
            if scheme == "light":
                check_accessibility(page)
            elif screen is LAPTOP:
                check_contrast(page)
    profiles[scheme].watch.check()
