"""Null characters, which no text of the database can hold: nothing in the admin has one.

Forms refuse them by themselves. What names a thing, narrows a list or names a session does not: the
database would fail on it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase

from gateway.content_policy import ADMIN_PATH

_NULL = "\0"


class NullCharacterMiddleware:
    """Answers 404 to an address of the admin that has one, 400 to a parameter or a cookie."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Look, and hand on."""
        if request.path_info.startswith(ADMIN_PATH):
            if _NULL in request.path_info:
                raise Http404("there is nothing of this name")
            parameters = chain.from_iterable(values for _, values in request.GET.lists())
            given = chain(parameters, request.COOKIES.values())
            if any(_NULL in value for value in given):
                raise BadRequest("null characters are not allowed")
        return self._get_response(request)
