"""Batches from the browser: sent, watched to their end, cancelled, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.stack import Gateway, Stack
from tests.acceptance.teams import Member
from tests.browser.forms import expect_said
from tests.browser.models import listed
from tests.browser.traffic import api_of, as_lines, chat_row, submit

pytestmark = pytest.mark.acceptance


def send(page: Page, team: str, content: bytes) -> None:
    """Send a file as a batch of that team."""
    page.goto("/admin/batches/new/")
    page.get_by_label("Team").select_option(label=team)
    page.get_by_label("File").set_input_files(
        {"name": "rows.jsonl", "mimeType": "application/jsonl", "buffer": content}
    )
    # The first line says what it is for.
    expect(page.get_by_label("What its lines are for")).to_have_value("/v1/chat/completions")
    page.get_by_role("button", name="Send").click()


def test_a_batch_that_is_sent_in_the_browser_is_watched_to_its_end(
    page: Page, member: Member, model: str, tmp_path: Path
) -> None:
    rows = [chat_row(f"row-{number}", model, "Hello") for number in range(20)]
    rows[4]["body"]["temperature"] = "hot"
    send(page, member.team_name, as_lines(rows))
    progress = page.get_by_role("region", name="Progress")
    expect(progress.get_by_text("Completed", exact=True).first).to_be_visible()
    expect(progress).to_contain_text("20 of 20 rows have ended")
    bad = page.get_by_role("row", name="row-4")
    expect(bad).to_contain_text("temperature")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download results").click()
    file = tmp_path / "results.jsonl"
    download.value.save_as(file)
    assert len([json.loads(line) for line in file.read_text("utf-8").splitlines()]) == 19


def test_a_file_with_faults_names_their_lines(page: Page, member: Member, model: str) -> None:
    twice = [chat_row("same", model, "Hello"), chat_row("same", model, "Hello")]
    send(page, member.team_name, as_lines(twice))
    expect(page.get_by_role("heading", name="What is wrong with its file")).to_be_visible()
    expect(page.get_by_role("row", name="duplicate_custom_id")).to_contain_text("2")


def test_a_stuck_batch_is_found_on_the_dashboard_and_cancelled(
    page: Page, stack: Stack, gateway: Gateway, member: Member
) -> None:
    with listed(stack, "demo-stuck") as model, api_of(gateway, member) as api:
        submit(api, [chat_row(f"row-{number}", model, "Hello") for number in range(3)])
        page.goto("/admin/")
        batch = page.get_by_role("region", name="Open batches").get_by_role(
            "row", name=member.team_name
        )
        expect(batch).to_contain_text("in progress")
        alert = page.get_by_role("listitem").filter(has_text=f"No engine serves {model}")
        expect(alert).to_contain_text("3 rows of batches wait for it")
        batch.get_by_role("link").click()
        waiting = page.get_by_text(f"no engine serves {model}.")
        expect(waiting).to_be_visible()
        page.get_by_role("link", name="Cancel this batch…").click()
        expect_said(page, "This cannot be undone")
        page.get_by_role("button", name="Cancel the batch").click()
        expect_said(page, "Cancelled: all 3 rows that waited are cancelled, and none was running.")
        progress = page.get_by_role("region", name="Progress")
        expect(progress).to_contain_text("3 of 3 rows have ended")
        expect(page.get_by_label("Rows that have ended")).to_have_class("op-without")
        expect(page.get_by_role("row", name="row-1")).to_contain_text("cancelled")
        expect(waiting).to_be_hidden()
