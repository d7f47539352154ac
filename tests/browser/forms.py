"""Filling in the admin's forms as people do: by what is written beside a field."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.acceptance.stack import eventually

_PATIENT_TABS = 150


def field(page: Page, label: str) -> Locator:
    """Return the field with this label, be it marked as required or not."""
    return page.get_by_label(re.compile(rf"^{re.escape(label)}\W*$", re.IGNORECASE)).first


def fill(page: Page, **values: str) -> None:
    """Fill in fields by their labels, spaces written as underscores."""
    for label, value in values.items():
        field(page, label.replace("_", " ")).fill(value)


def choose(page: Page, name: str, text: str) -> None:
    """Choose from a list that is searched on the server."""
    page.locator(f"#id_{name} + .select2").click()
    page.get_by_role("searchbox").last.fill(text)
    page.get_by_role("option", name=text, exact=True).click()


def save(page: Page) -> None:
    """Send the form; it must be accepted."""
    page.get_by_role("button", name="Save", exact=True).click()
    expect_said(page, "successfully")


def expect_said(page: Page, text: str) -> None:
    """Wait until the page says so."""
    expect(page.get_by_text(text).first).to_be_visible()


def expect_listed(page: Page, row: Locator) -> None:
    """Look at a list again until the clerk has written what is to be in it."""

    def look() -> bool:
        page.reload()
        return row.is_visible()

    eventually(look, f"the list at {page.url} has {row}")


def expect_copied(button: Locator, text: str) -> None:
    """Press a button that copies, and wait until the clipboard has something with this text."""
    button.click()
    read = "navigator.clipboard.readText()"
    eventually(lambda: text in button.page.evaluate(read), f"{text} is copied")


def expect_live(page: Page) -> None:
    """Wait until the dashboard has been told how things are."""
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def open_playground(page: Page, team: str, model: str) -> None:
    """Choose who asks which model."""
    page.goto("/admin/playground/")
    page.get_by_label("Team").select_option(label=team)
    page.get_by_label("Model").select_option(value=model)


def ask(page: Page, text: str) -> None:
    """Send a turn of the playground's conversation."""
    page.get_by_label("Your turn").fill(text)
    page.get_by_role("button", name="Send").click()


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until the focus is there, where it must be seen."""
    wanted.wait_for()
    for _ in range(_PATIENT_TABS):
        page.keyboard.press("Tab")
        if wanted.evaluate("element => element === document.activeElement"):
            assert wanted.evaluate(_SHOWS_FOCUS), f"nothing shows the focus on {wanted}"
            return
    raise AssertionError(f"the Tab key does not reach {wanted}")


# An outline, a ring drawn as a shadow, or a border of its own.
_SHOWS_FOCUS = """element => {
    const style = getComputedStyle(element)
    const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0
    return outlined || style.boxShadow !== "none" || element.matches("input, select, textarea")
}"""
