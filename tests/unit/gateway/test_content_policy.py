"""What browsers may load and run on each page."""

from __future__ import annotations

import re

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db


def policy_of(client: Client, path: str) -> dict[str, list[str]]:
    header = client.get(path)["Content-Security-Policy"]
    parts = (part.split() for part in header.split("; "))
    return {name: sources for name, *sources in parts}


@pytest.mark.parametrize("path", ["/", "/control/v1/usage/daily", "/nowhere"])
def test_pages_run_no_script_and_load_nothing_of_others(client: Client, path: str) -> None:
    policy = policy_of(client, path)
    assert policy["default-src"] == policy["frame-ancestors"] == ["'none'"]
    assert "script-src" not in policy
    assert not [source for sources in policy.values() for source in sources if "unsafe" in source]


def test_the_landing_page_s_own_style_is_let_in_by_a_number_of_its_own(client: Client) -> None:
    seen = set()
    for _ in range(2):
        page = client.get("/")
        nonce = re.search(r'<style nonce="([^"]+)">', page.content.decode())
        assert nonce is not None
        assert f"style-src 'nonce-{nonce[1]}'" in page["Content-Security-Policy"]
        seen.add(nonce[1])
    assert len(seen) == 2


@pytest.mark.parametrize("path", ["/admin/", "/admin/login/", "/admin/gateway/team/"])
def test_the_admin_has_the_two_exceptions_that_its_theme_needs(
    admin_client: Client, client: Client, path: str
) -> None:
    for each in (admin_client, client):
        policy = policy_of(each, path)
        assert policy["script-src"] == ["'self'", "'unsafe-eval'"]
        assert policy["style-src"] == ["'self'", "'unsafe-inline'"]
        assert policy["connect-src"] == policy["form-action"] == policy["font-src"] == ["'self'"]
        assert policy["default-src"] == policy["base-uri"] == ["'none'"]


def test_no_page_of_the_admin_has_a_script_within(admin_client: Client) -> None:
    for path in ("/admin/", "/admin/gateway/team/", "/admin/gateway/team/add/", "/admin/engines/"):
        page = admin_client.get(path).content.decode()
        tags = re.findall(r"<script\b[^>]*>", page)
        inline = [tag for tag in tags if "src=" not in tag and "application/json" not in tag]
        assert inline == [], path
        assert not re.search(r"\son[a-z]+=", page), path
