"""The operators' accounts, their roles, and what they have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse

from gateway.admin.filters import TimeFilter
from gateway.admin.pages import AskingAdmin, Question, RecordAdmin
from gateway.admin.theme import (
    ModelAdmin,
    PasswordChangeForm,
    RelatedFilter,
    UserChangeForm,
    UserCreationForm,
    YesNoFilter,
)
from gateway.admin.two_factor import forget_factors

if TYPE_CHECKING:
    _UserAdmin = UserAdmin[User]
else:
    _UserAdmin = UserAdmin

_FORGET = Question(
    action="forget_factors",
    title="Reset the second factor of these accounts?",
    of_one="Reset the second factor of {row}?",
    text="Their phones' codes and recovery codes are worth nothing from now on. They sign in with "
    "their password, and set up a second factor anew.",
    yes="Reset",
)


# Importing Django's own pages for these has registered them.
admin.site.unregister([User, Group])


@admin.register(User)
class AccountAdmin(_UserAdmin, AskingAdmin):
    """Accounts. What each may do is said by its roles; a superuser may do everything.

    Only superusers make superusers, and change their accounts.
    """

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = PasswordChangeForm
    list_display = ["username", "first_name", "last_name", "roles", "is_active", "last_login"]
    list_filter = [("is_active", YesNoFilter), ("groups", RelatedFilter)]
    actions = ["forget_factors"]
    fieldsets = [
        (None, {"fields": ["username", "password"]}),
        ("Who", {"fields": ["first_name", "last_name", "email"]}),
        ("What they may do", {"fields": ["is_active", "groups", "is_superuser"]}),
        ("When", {"fields": ["last_login", "date_joined"]}),
    ]
    add_fieldsets = [
        (None, {"fields": ["username", "password1", "password2", "groups"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """Read each account's roles with it."""
        accounts: QuerySet[User] = super().get_queryset(request)
        return accounts.prefetch_related("groups")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep the moments; and who is a superuser, but for superusers."""
        kept = ("last_login", "date_joined")
        return kept if request.user.is_superuser else (*kept, "is_superuser")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Change superusers' accounts as a superuser only."""
        return _may_touch(request, obj) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Delete superusers' accounts as a superuser only."""
        return _may_touch(request, obj) and super().has_delete_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """Let each account in: there are none but operators'."""
        obj.is_staff = True
        super().save_model(request, obj, form, change)

    @admin.display
    def roles(self, account: User) -> str:
        """Return their names."""
        if account.is_superuser:
            return "superuser"
        return ", ".join(group.name for group in account.groups.all()) or "none"

    @admin.action(description="Reset the second factor", permissions=["change"])
    def forget_factors(self, request: HttpRequest, queryset: QuerySet[User]) -> HttpResponse | None:
        """Ask, and take the second factors of the chosen accounts away."""
        if not request.user.is_superuser:
            queryset = queryset.filter(is_superuser=False)
        if not self.is_confirmed(request):
            return self.ask(request, queryset, _FORGET)

        def forget(account: User) -> bool:
            return forget_factors(account) > 0

        return self.carry_out(request, queryset, forget, "Second factor reset")


def _may_touch(request: HttpRequest, account: User | None) -> bool:
    return request.user.is_superuser or account is None or not account.is_superuser


@admin.register(Group)
class RoleAdmin(GroupAdmin, ModelAdmin):
    """Roles: viewer, operator, billing and owner are there from the beginning."""

    list_display = ["name", "members", "may"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        """Count with each how many have it, and how much it lets them do."""
        roles: QuerySet[Group] = super().get_queryset(request)
        return roles.annotate(
            member_count=Count("user", distinct=True),
            permission_count=Count("permissions", distinct=True),
        )

    @admin.display
    def members(self, role: Any) -> int:
        """Return how many accounts have it."""
        count: int = role.member_count
        return count

    @admin.display(description="permissions")
    def may(self, role: Any) -> int:
        """Return how many there are."""
        count: int = role.permission_count
        return count


class ChangedFilter(TimeFilter):
    """By when it was done."""

    field = "action_time"


@admin.register(LogEntry)
class ChangeAdmin(RecordAdmin):
    """What operators have changed in the admin, newest first."""

    list_display = ["action_time", "user", "content_type", "object_repr", "change"]
    list_display_links = ["action_time"]
    ordering = ["-action_time", "-id"]
    list_select_related = ["user", "content_type"]
    list_filter = [("user", RelatedFilter), ChangedFilter]
    fields = ["action_time", "user", "content_type", "object_id", "object_repr", "change"]
    export_columns = (
        *("id", "action_time", "user_id", "user__username", "content_type__model", "object_id"),
        *("object_repr", "action_flag", "change_message"),
    )

    @admin.display
    def change(self, entry: LogEntry) -> str:
        """Return what was done, in words."""
        return entry.get_change_message() or str(entry.get_action_flag_display())
