"""Who may watch: operators with a session of the admin, from the admin's own pages."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.admin import site
from django.contrib.auth import get_user
from django.http import HttpRequest, HttpResponse
from django_otp.middleware import OTPMiddleware


def session_of(scope: dict[str, Any]) -> str:
    """Return the key of the session that a WebSocket's cookies name; empty where there is none."""
    key: str = scope["cookies"].get(settings.SESSION_COOKIE_NAME, "")
    # A quoted cookie may hold one, and the database fails on it.
    return "" if "\0" in key else key


def permissions_of(session_key: str) -> frozenset[str] | None:
    """Return what the operator of a session may do; None: it is nobody's who may do anything.

    Reads the database: a session that was ended, and a permission that was taken, count at once.
    """
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    request.user = user = get_user(request)
    # It adds to the user whether a second factor was shown.
    OTPMiddleware(_answer)(request)
    if not site.has_permission(request):
        return None
    return frozenset(user.get_all_permissions()) or None


def _answer(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def names_origin(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a WebSocket is opened by a page, and not by a program."""
    return any(name.lower() == b"origin" for name, _ in headers)


def is_own_page(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a WebSocket is opened by a page of the very address that it is opened at.

    Browsers always name the page's origin; what names none has no session to be misused either,
    and is refused.
    """
    named = {
        name.decode("latin-1").lower(): value.decode("latin-1").lower() for name, value in headers
    }
    origin = named.get("origin", "")
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    return bool(origin) and urlsplit(origin).netloc == named.get("host")
