"""Accounts for the admin, put straight into a stack's database."""

from __future__ import annotations

import psycopg
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tests.acceptance.stack import Stack
from tests.acceptance.teams import insert

SUPERUSER = "ada"
PASSWORD = "correct horse battery staple"


def make_person(stack: Stack, name: str, *groups: str, superuser: bool = False) -> None:
    """Make an account in these groups, which signs in with `PASSWORD`."""
    # One round: what is tried is the form, not how long guessing would take.
    password = PBKDF2PasswordHasher().encode(PASSWORD, "salt", iterations=1)
    user = User(username=name, password=password, is_staff=True, is_superuser=superuser)
    user_id = insert(stack, user)
    with psycopg.connect(stack.layout.database_url) as connection:
        for group in groups:
            joined = connection.execute(
                "INSERT INTO auth_user_groups (user_id, group_id)"
                " SELECT %s, id FROM auth_group WHERE name = %s",
                [user_id, group],
            )
            assert joined.rowcount == 1, f"there is no group {group}"


def fill_in(page: Page, name: str, password: str = PASSWORD) -> None:
    """Send the form that the admin begins with."""
    page.goto("/admin/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def sign_in(page: Page, name: str) -> None:
    """Come to the admin's first page."""
    fill_in(page, name)
    expect(page).to_have_url("/admin/")
