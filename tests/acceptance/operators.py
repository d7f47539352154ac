"""Operators with a browser's cookies, but without a browser."""

from __future__ import annotations

import re
import uuid
from html import unescape
from typing import Any

import httpx

from tests.acceptance.client import TIMEOUT_S
from tests.acceptance.stack import Gateway, Stack

_MAKE = """
from django.contrib.auth.models import Permission, User
user = User.objects.create_user({name!r}, password={password!r}, is_staff=True)
user.is_superuser = {is_superuser}
user.save()
user.user_permissions.add(*Permission.objects.filter(codename__in={permissions!r}))
"""
_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class Operator:
    """Somebody who is logged in to one gateway's admin. Without permissions: who may do all."""

    def __init__(self, stack: Stack, gateway: Gateway, *permissions: str) -> None:
        self.name, password = f"operator-{uuid.uuid4()}", "correct horse battery"
        made = _MAKE.format(
            name=self.name,
            password=password,
            permissions=permissions,
            is_superuser=not permissions,
        )
        stack.manage("shell", "--no-imports", "-c", made)
        self.http = httpx.Client(base_url=gateway.url, timeout=TIMEOUT_S, trust_env=False)
        self.post("/admin/login/", username=self.name, password=password)

    @property
    def cookie(self) -> str:
        """What a browser would send."""
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.http.cookies.jar)

    def page(self, address: str) -> str:
        """Return a page's HTML, what it says unescaped."""
        response = self.http.get(address, follow_redirects=True)
        assert response.status_code == httpx.codes.OK, response.text
        return unescape(response.text)

    def post(self, address: str, form_at: str = "", **fields: Any) -> httpx.Response:
        """Send the form of a page; `form_at` is where the page is, if that is elsewhere."""
        token = _TOKEN.search(self.http.get(form_at or address).text)
        assert token is not None, f"{form_at or address} has no form"
        headers = {"X-CSRFToken": token[1], "referer": f"{self.http.base_url}{address}"}
        response = self.http.post(address, data=fields, headers=headers)
        assert response.status_code < httpx.codes.BAD_REQUEST, response.text
        return response
