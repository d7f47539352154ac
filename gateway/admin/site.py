"""The admin site: who gets in, and the way to each page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from http import HTTPStatus
from typing import Any, NamedTuple

from django.core.paginator import InvalidPage
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import URLPattern, URLResolver, reverse

from gateway.admin import sign_in
from gateway.admin.theme import AdminSite


class OperatorSite(AdminSite):
    """The site that operators see; `django.contrib.admin.site` is the one instance of it."""

    index_title = "Dashboard"
    login_form = sign_in.LoginForm

    def extra_urls(self) -> list[URLPattern | URLResolver]:
        """Return the pages that are no table's. The theme puts them ahead of the tables'."""
        # Its pages need this site.
        from gateway.admin.urls import PAGES

        return PAGES

    def has_permission(self, request: HttpRequest) -> bool:
        """Let in operators; where two factors are asked for, those who have shown both.

        Everybody may leave.
        """
        leaves = request.path == reverse(f"{self.name}:logout", current_app=self.name)
        return super().has_permission(request) and (leaves or sign_in.is_let_in(request))

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Any:
        """Serve a page to operators. An account without a role has no page but those about itself.

        Every page goes through here: the dashboard and others that are no table's, too.
        """
        own_account = (self.logout, self.password_change, self.password_change_done)
        if view in (*own_account, self.i18n_javascript):
            return super().admin_view(view, cacheable)

        @wraps(view)
        def of_roles(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if sign_in.has_role(request.user):
                page: HttpResponseBase = view(request, *args, **kwargs)
                return page
            frame = self.each_context(request) | {"title": "No role yet"}
            return render(request, "admin/no_role.html", frame, status=HTTPStatus.FORBIDDEN)

        return super().admin_view(of_roles, cacheable)

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Ask for name and password; lead who has shown them to the second factor's beginning."""
        if sign_in.must_enrol(request):
            return redirect("admin:two_factor")
        return super().login(request, extra_context)

    def search(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Search tables, and rows by `gateway.admin.search`; there may be no such page of them."""
        try:
            found: HttpResponse = super().search(request, extra_context)  # type: ignore[misc]
        except InvalidPage as error:
            raise Http404(str(error)) from error
        return found


class Entry(NamedTuple):
    """A line of the navigation. Its page is `admin:NAME`; `permission` is what seeing it takes."""

    title: str
    icon: str
    name: str
    permission: str = ""


def _table(title: str, icon: str, app: str, model: str) -> Entry:
    return Entry(title, icon, f"{app}_{model}_changelist", f"{app}.view_{model}")


NAVIGATION = {
    "": [
        Entry("Dashboard", "monitoring", "index"),
        Entry("Find a request", "search", "find_request", "jobs.view_requestrecord"),
        Entry("Playground", "play_circle", "playground", "gateway.add_apikey"),
        Entry("First steps", "rocket_launch", "first_steps"),
    ],
    "Traffic": [
        _table("Requests", "list_alt", "jobs", "requestrecord"),
        _table("Batches", "stacks", "jobs", "batch"),
        Entry("New batch", "upload_file", "new_batch", "gateway.add_apikey"),
        _table("Pieces of work", "checklist", "jobs", "work"),
        _table("Responses", "forum", "jobs", "storedresponse"),
        _table("Streams", "dynamic_feed", "jobs", "responsestream"),
        _table("Files", "draft", "jobs", "storedfile"),
    ],
    "Teams": [
        _table("Teams", "groups", "gateway", "team"),
        _table("API keys", "key", "gateway", "apikey"),
        _table("Ledger", "receipt_long", "jobs", "ledgerentry"),
        _table("Prices", "sell", "jobs", "price"),
    ],
    "Serving": [
        Entry("Engines", "memory", "engines", "jobs.view_worker"),
        _table("Models", "neurology", "inference", "model"),
        _table("Upstreams", "cloud", "inference", "upstream"),
        _table("MCP servers", "extension", "inference", "mcpserver"),
    ],
    "Operators": [
        _table("Accounts", "person", "auth", "user"),
        _table("Roles", "badge", "auth", "group"),
        _table("Changes", "history", "admin", "logentry"),
        _table("Sign-ins", "login", "axes", "accesslog"),
        _table("Failed sign-ins", "gpp_bad", "axes", "accessattempt"),
        _table("Seals", "verified", "jobs", "auditseal"),
    ],
}
"""By heading, in this order."""


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Return where this operator may go, as the theme takes it."""
    if not sign_in.has_role(request.user):
        return []
    return [
        {"title": heading, "separator": bool(heading), "items": items}
        for heading, entries in NAVIGATION.items()
        if (items := list(_items(request, entries)))
    ]


def _items(request: HttpRequest, entries: list[Entry]) -> Iterator[dict[str, str]]:
    for entry in entries:
        if not entry.permission or request.user.has_perm(entry.permission):
            address = reverse(f"admin:{entry.name}")
            yield {"title": entry.title, "icon": entry.icon, "link": address}


def account_links(request: HttpRequest) -> list[dict[str, str]]:
    """Return what an operator may do about the own account."""
    links = [("Change password", "password_change"), ("Two-factor sign-in", "two_factor")]
    return [{"title": title, "link": reverse(f"admin:{name}")} for title, name in links]
