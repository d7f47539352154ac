"""The playground, in a browser, with a real model in vLLM."""

from __future__ import annotations

import secrets

import pytest
from playwright.sync_api import expect

from tests.acceptance.stack import Gateway, Stack
from tests.acceptance.teams import make_member
from tests.browser.chromium import chromium
from tests.browser.forms import ask, field, open_playground
from tests.browser.looks import LAPTOP
from tests.browser.people import make_person, sign_in
from tests.browser.profiles import new_profile

pytestmark = [pytest.mark.acceptance, pytest.mark.engine]


def test_an_operator_streams_from_a_real_model(
    stack: Stack, gateway: Gateway, real_model: str
) -> None:
    name = f"operator-{secrets.token_hex(3)}"
    make_person(stack, name, superuser=True)
    team = make_member(stack).team_name
    with (
        chromium() as browser,
        new_profile(browser, gateway.url, None, LAPTOP, "light") as profile,
    ):
        page = profile.open()
        sign_in(page, name)
        open_playground(page, team, real_model)
        field(page, "Temperature").fill("0")
        field(page, "Max tokens").fill("32")
        ask(page, "What is the capital of France?")
        log = page.get_by_role("log")
        expect(log).to_contain_text("Paris")
        expect(log).to_contain_text("end_turn")
        profile.watch.check()
