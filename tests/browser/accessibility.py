"""Whether everybody can use a page."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.acceptance.stack import eventually

_SERIOUS = ("serious", "critical")
_VIOLATIONS = {"resultTypes": ["violations"]}
_CONTRAST = _VIOLATIONS | {"runOnly": ["color-contrast"]}
_TOLD_NODES = 8
_FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
_axe = Axe()


def check_accessibility(page: Page) -> None:
    """Fail if axe-core finds a serious violation on the page as it is now."""
    _check(page, _VIOLATIONS)


def check_contrast(page: Page) -> None:
    """Fail if something cannot be told from what is behind it."""
    _check(page, _CONTRAST)


def check_width(page: Page) -> None:
    """Fail if the page is wider than the screen, so that reading it means moving it about."""
    # A chart takes its new width in the frame after the screen's.
    eventually(lambda: page.evaluate(_FITS), f"{page.url} is no wider than the screen")


def _check(page: Page, options: dict[str, Any]) -> None:
    violations = _axe.run(page, options=options).response["violations"]
    serious = [_told(each) for each in violations if each["impact"] in _SERIOUS]
    assert not serious, "\n".join([page.url, *serious])


def _told(violation: dict[str, Any]) -> str:
    nodes = violation["nodes"][:_TOLD_NODES]
    where = [f"    {node['target']} {node['html'][:160]}" for node in nodes]
    return "\n".join([f"{violation['impact']} {violation['id']}: {violation['help']}", *where])
