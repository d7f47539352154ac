"""The playground: prompts through the real API, with a key that lives as long as the page."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.client import ENDLESS, script
from tests.acceptance.stack import Stack, eventually
from tests.acceptance.teams import Member, rows
from tests.browser import pictures
from tests.browser.accessibility import check_accessibility
from tests.browser.forms import ask, expect_copied, open_playground
from tests.browser.looks import LAPTOP

pytestmark = pytest.mark.acceptance

_HEIGHT = "document.documentElement.scrollHeight"


def session_keys(stack: Stack, member: Member) -> list[tuple[Any, ...]]:
    """Return when each key of the team that a page made was revoked."""
    return rows(
        stack,
        "SELECT revoked_at FROM gateway_apikey WHERE team_id = %s AND name = 'Playground session'",
        member.team_id,
    )


def test_an_answer_is_streamed_and_the_conversation_goes_on(
    page: Page, member: Member, model: str
) -> None:
    open_playground(page, member.team_name, model)
    ask(page, "Why are there two tides a day?")
    log = page.get_by_role("log")
    expect(log).to_contain_text("Tides are the sea's answer to the Moon")
    expect(log).to_contain_text("end_turn")
    page.get_by_text("Show code").click()
    page.set_viewport_size({"width": LAPTOP.width, "height": page.evaluate(_HEIGHT)})
    pictures.keep(page, "playground-answer")
    check_accessibility(page)
    ask(page, script(echo=True))
    expect(log.get_by_text("end_turn")).to_have_count(2)


def test_a_stream_shows_as_it_comes_and_can_be_stopped(
    page: Page, member: Member, model: str
) -> None:
    open_playground(page, member.team_name, model)
    ask(page, ENDLESS)
    log = page.get_by_role("log")
    expect(log).to_contain_text("Tides")
    page.get_by_role("button", name="Stop").click()
    expect(log).to_contain_text("Stopped.")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_thinking_and_calls_of_tools_are_shown(page: Page, member: Member, model: str) -> None:
    open_playground(page, member.team_name, model)
    page.get_by_text("System prompt, thinking, tools").click()
    page.get_by_label("Tools, as a JSON array").fill(
        '[{"name": "tide_table", "input_schema": {"type": "object"}}]'
    )
    call = {"name": "tide_table", "arguments": ['{"port": ', '"Brest"}']}
    ask(page, script(text="I look it up.", tool_calls=[call], echo_results=True))
    log = page.get_by_role("log")
    expect(log).to_contain_text("tide_table")
    expect(log).to_contain_text("Brest")
    page.get_by_label("What tide_table says").fill("High water at 04:12")
    page.get_by_role("button", name="Send the results").click()
    expect(log.get_by_text("High water at 04:12")).to_have_count(2)


def test_the_code_that_asks_the_same_is_shown(page: Page, member: Member, model: str) -> None:
    open_playground(page, member.team_name, model)
    ask(page, "Hello")
    expect(page.get_by_role("log")).to_contain_text("end_turn")
    page.get_by_text("Show code").click()
    for language, mark in (
        ("Python", "anthropic.Anthropic("),
        ("TypeScript", "@anthropic-ai/sdk"),
        ("curl", "/v1/messages"),
    ):
        page.get_by_role("radio", name=language).check()
        expect(page.locator("#code pre:visible")).to_contain_text(mark)
    expect_copied(page.get_by_role("button", name="Copy the command"), "/v1/messages")


def test_an_error_of_the_api_is_shown_in_its_words(page: Page, member: Member, model: str) -> None:
    open_playground(page, member.team_name, model)
    ask(page, script(tokens=5, fail_at=2))
    expect(page.get_by_role("log")).to_contain_text("the script says to fail here")


def test_its_key_ends_with_the_page(page: Page, stack: Stack, member: Member, model: str) -> None:
    open_playground(page, member.team_name, model)
    ask(page, "Hello")
    expect(page.get_by_role("log")).to_contain_text("end_turn")
    ((revoked_at,),) = session_keys(stack, member)
    assert revoked_at is None
    page.goto("/admin/")
    eventually(lambda: session_keys(stack, member)[0][0], "the key is revoked")
