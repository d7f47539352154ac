"""Cancelling what may take long: asked first, and then done to each that has not ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from gateway.admin.pages import AskingAdmin, Question


def cancel_each(
    site: AskingAdmin,
    request: HttpRequest,
    queryset: QuerySet[Any],
    question: Question,
    cancel: Callable[[Any], Any],
) -> HttpResponse | None:
    """Ask, then cancel and say of how many that was; what has ended stays as it is.

    `cancel` returns how one is then, or None if it is gone.
    """
    if not site.is_confirmed(request):
        return site.ask(request, queryset, question)

    def was_cancelled(each: Any) -> bool:
        now = cancel(each)
        return now is not None and now.status != each.status

    back = site.after(request, queryset)
    chosen = len(queryset)
    cancelled = site.do_each(request, queryset, was_cancelled, "Cancelled")
    level = messages.SUCCESS if cancelled else messages.WARNING
    site.message_user(request, f"Cancelled {cancelled} of {chosen}.", level)
    return back
