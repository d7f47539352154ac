"""Sign-ins: those that failed, the locks that follow, and those that did not."""

from __future__ import annotations

from typing import Any

from axes.models import AccessAttempt, AccessLog
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from gateway.admin.filters import TimeFilter
from gateway.admin.pages import AskingAdmin, Question, RecordAdmin

_UNLOCK = Question(
    action="unlock",
    title="Forget these failed sign-ins?",
    of_one="Forget the failed sign-ins from {row.ip_address}?",
    text="Whoever was locked out by them may try again at once.",
    yes="Forget",
    no="Cancel",
)


class TriedFilter(TimeFilter):
    """By when it was, or the last of several."""

    field = "attempt_time"


@admin.register(AccessAttempt)
class AccessAttemptAdmin(AskingAdmin, RecordAdmin):
    """Each name that was tried in vain, by address; passwords and codes are not kept."""

    ordering = ["-attempt_time", "-id"]
    list_display = ["attempt_time", "username", "ip_address", "failures_since_start", "user_agent"]
    list_display_links = ["attempt_time"]
    list_filter = [TriedFilter]
    actions = ["unlock"]
    fields = [
        *("attempt_time", "username", "ip_address", "user_agent", "failures_since_start"),
        "path_info",
    ]
    export_columns = (
        *("id", "attempt_time", "username", "ip_address", "user_agent", "failures_since_start"),
    )

    @admin.action(description="Let them try again", permissions=["unlock"])
    def unlock(
        self, request: HttpRequest, queryset: QuerySet[AccessAttempt]
    ) -> HttpResponse | None:
        """Ask, and forget."""
        if not self.is_confirmed(request):
            return self.ask(request, queryset, _UNLOCK)
        forgotten, _ = queryset.delete()
        self.message_user(request, f"Forgot {forgotten}.", messages.SUCCESS)
        return None

    def has_unlock_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may delete them."""
        return request.user.has_perm("axes.delete_accessattempt")


@admin.register(AccessLog)
class AccessLogAdmin(RecordAdmin):
    """Every sign-in that succeeded."""

    ordering = ["-attempt_time", "-id"]
    list_display = ["attempt_time", "username", "ip_address", "user_agent", "logout_time"]
    list_display_links = ["attempt_time"]
    list_filter = [TriedFilter]
    fields = ["attempt_time", "username", "ip_address", "user_agent", "logout_time"]
    export_columns = ("id", "attempt_time", "username", "ip_address", "user_agent", "logout_time")
