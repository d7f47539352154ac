"""Operators for tests."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.test import Client


def sign_in(client: Client, role: str = "", name: str = "op") -> User:
    """Sign a new operator in, with a role or with none."""
    user = User.objects.create_user(name, password="correct horse", is_staff=True)
    if role:
        user.groups.add(Group.objects.get(name=role))
    client.force_login(user)
    return user
