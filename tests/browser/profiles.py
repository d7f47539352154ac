"""Browser profiles: who is signed in, on which screen, and a watch over every page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playwright.sync_api import Browser, BrowserContext, Page, StorageState, expect

from tests.acceptance.stack import PATIENCE_S
from tests.browser.looks import Scheme, Screen
from tests.browser.watch import Watch

PATIENCE_MS = PATIENCE_S * 1000
expect.set_options(timeout=PATIENCE_MS)


@dataclass(frozen=True)
class Profile:
    """What one person has open."""

    context: BrowserContext
    watch: Watch

    def open(self) -> Page:
        """Open another page."""
        return self.context.new_page()


OpenProfile = Callable[..., Profile]
"""Takes a state or None, and by name `screen`, `scheme` and `url`."""


@contextmanager
def new_profile(
    browser: Browser, url: str, state: StorageState | None, screen: Screen, scheme: Scheme
) -> Iterator[Profile]:
    """Make a profile; nothing of it outlives the context."""
    context = browser.new_context(
        base_url=url,
        storage_state=state,
        viewport={"width": screen.width, "height": screen.height},
        color_scheme=scheme,
        # Nothing moves when it is photographed, or looked at by axe.
        reduced_motion="reduce",
        permissions=["clipboard-read", "clipboard-write"],
    )
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield Profile(context, Watch(context, url))
    finally:
        context.close()
