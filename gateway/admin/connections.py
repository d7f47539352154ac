"""Tests of connections: whether what engine workers connect to can be used, and if not, why."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST

from gateway.admin.pages import NudgingAdmin
from gateway.admin.screens.view import show
from inference.connections import Finding

Check = Callable[[], Awaitable[list[Finding]]]


class _Tested(NamedTuple):
    name: str
    findings: list[Finding]


class ConnectionAdmin(NudgingAdmin):
    """Adds a button and an action that test connections, as they are saved.

    They are made from this process. Engine workers may run elsewhere, and the page says so. Whoever
    may change an entry may test it: it is workers who connect to whatever it says otherwise.
    """

    change_form_template = "admin/inference/connection_change_form.html"
    actions = ["test_connections"]
    shell_command: ClassVar[str]
    """What tells the same on the shell."""

    def connection_checks(self, names: Sequence[str]) -> list[Check]:
        """Return what tests the entries of these names, in their order."""
        raise NotImplementedError

    def get_urls(self) -> list[URLPattern]:
        """Add the test, ahead of the pages that take any path for an id."""
        test = path(
            "<path:object_id>/test/",
            self.admin_site.admin_view(require_POST(self.test_view)),
            name=f"{self.opts.app_label}_{self.opts.model_name}_test",
        )
        return [test, *super().get_urls()]

    def test_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Test one connection; it takes the permission to change it."""
        found = self.get_object(request, unquote(object_id))
        if found is None:
            raise Http404(f"there is no {self.opts.verbose_name} of that name")
        if not self.has_change_permission(request, found):
            raise PermissionDenied
        return self._page(request, [found.pk])

    @admin.action(description="Test connection", permissions=["change"])
    def test_connections(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        """Test several at once."""
        return self._page(request, list(queryset.values_list("pk", flat=True)))

    def _page(self, request: HttpRequest, names: list[str]) -> TemplateResponse:
        # Shown here and not after a redirect: a cookie has no room for what many tests have found.
        return show(
            request,
            "admin/inference/connections.html",
            "Test connection",
            tested=map(_Tested, names, asyncio.run(_all(self.connection_checks(names)))),
            command=self.shell_command,
            host=socket.gethostname(),
            opts=self.opts,
        )


async def _all(checks: list[Check]) -> list[list[Finding]]:
    return await asyncio.gather(*(check() for check in checks))
