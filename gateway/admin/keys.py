"""API keys: made and shown once, their limits changed, and revoked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import OuterRef, QuerySet, Subquery
from django.forms.widgets import Script
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from gateway.admin.links import list_link
from gateway.admin.pages import AskingAdmin, ExportingAdmin, NudgingAdmin, Question
from gateway.admin.theme import CheckboxSelectMultiple, RelatedFilter, button
from gateway.keys import give_secret, revoke
from gateway.models import ApiKey, Scope, default_scopes
from gateway.team_ids import parse_team_id
from inference.models import Model
from inference.transport.nudge import Topic
from jobs.models import KeyUse, RequestRecord

if TYPE_CHECKING:
    _ApiKeyForm = forms.ModelForm[ApiKey]
else:
    _ApiKeyForm = forms.ModelForm

_REVOKE = Question(
    action="revoke_selected",
    title="Revoke these API keys?",
    of_one="Revoke the API key {row.name} of {row.team}?",
    text="Requests with what is revoked are refused from now on. This cannot be undone.",
    yes="Revoke",
    no="Cancel",
)


_SHOWN_ONCE = (
    'Copy the key now, it is not shown again: <code id="new-key">{}</code> '
    '<button type="button" class="copy" data-copies="new-key" aria-label="Copy the key">Copy'
    "</button>"
)


# As the list's filter by team has it in the address.
_TEAM_PARAMETER = "team__id__exact"


class ApiKeyForm(_ApiKeyForm):
    """A key: what it may do is chosen, not typed."""

    scopes = forms.MultipleChoiceField(
        choices=Scope.choices,
        initial=default_scopes,
        widget=CheckboxSelectMultiple,
        help_text="At least one.",
    )
    allowed_models = forms.MultipleChoiceField(
        required=False, widget=CheckboxSelectMultiple, help_text="None chosen: every model."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # One that has left the catalogue must not be lost by the next change.
        listed = {*Model.objects.values_list("id", flat=True), *self.instance.allowed_models}
        self.fields["allowed_models"].choices = [(name, name) for name in sorted(listed)]  # type: ignore[attr-defined]

    def clean_expires_at(self) -> Any:
        """Refuse a key that would be born dead; one that lives may be ended by a past moment."""
        moment = self.cleaned_data["expires_at"]
        if self.instance._state.adding and moment is not None and moment <= timezone.now():
            raise forms.ValidationError("Must lie in the future.")
        return moment


@admin.register(ApiKey)
class ApiKeyAdmin(AskingAdmin, ExportingAdmin, NudgingAdmin):
    """Keys keep their name and team, and are never deleted: who called stays known."""

    class Media:
        """What copies the text of a new key."""

        js: ClassVar = [Script("gateway/copy.js", type="module")]

    topic = Topic.KEYS
    form = ApiKeyForm
    list_display = [
        *("name", "prefix", "team", "owner"),
        *("created_at", "last_used", "expires_at", "revoked_at"),
    ]
    list_filter = [("revoked_at", admin.EmptyFieldListFilter), ("team", RelatedFilter)]
    list_select_related = ["team"]
    search_fields = ["name", "prefix", "owner"]
    autocomplete_fields = ["team"]
    actions = ["revoke_selected"]
    actions_detail = ["revoke_this"]
    identity = ("name", "team")
    shown = ("prefix", "created_at", "last_used", "revoked_at", "requests")
    export_columns = (
        *("id", "name", "prefix", "team_id", "team__name", "owner", "created_at", "expires_at"),
        *("revoked_at", "last_used_at", "requests_per_minute", "input_tokens_per_minute"),
        *("output_tokens_per_minute", "max_concurrent"),
    )
    fieldsets = [
        (None, {"fields": [*identity, "owner"]}),
        ("What it may do", {"fields": ["scopes", "allowed_models", "expires_at"]}),
        (
            "Limits",
            {
                "fields": [
                    *("requests_per_minute", "max_concurrent"),
                    *("input_tokens_per_minute", "output_tokens_per_minute"),
                ],
                "description": "Beside its team's. Empty: none.",
            },
        ),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show what became of a key that exists."""
        return [*self.fieldsets, *([("Life", {"fields": self.shown})] if obj else [])]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep the name and the team of a key that exists."""
        return (*self.identity, *self.shown) if obj else ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        """Read when each key was last used with it."""
        uses = KeyUse.objects.filter(pk=OuterRef("pk")).values("last_used_at")
        keys: QuerySet[ApiKey] = super().get_queryset(request)
        return keys.annotate(last_used_at=Subquery(uses))

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Fill in the team whose page, or whose list of keys, it was."""
        initial: dict[str, Any] = dict(super().get_changeform_initial_data(request))
        narrowed = QueryDict(request.GET.get("_changelist_filters", ""))
        given = initial.pop("team", None) or narrowed.get(_TEAM_PARAMETER, "")
        team_id = parse_team_id(given)
        return initial if team_id is None else initial | {"team": team_id}

    @admin.display(description="last used", empty_value="-")
    def last_used(self, key: Any) -> Any:
        """Return when it last called a model."""
        return key.last_used_at

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Keys are revoked instead."""
        return False

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """Give a new key its secret and show it, this once."""
        plaintext = None if change else give_secret(obj)
        super().save_model(request, obj, form, change)
        if plaintext is not None:
            self.message_user(
                request,
                format_html(_SHOWN_ONCE, plaintext),
                messages.WARNING,
            )

    @admin.display
    def requests(self, key: ApiKey) -> SafeString:
        """Return the way to what was asked with it."""
        return list_link(RequestRecord, "all of its requests", key=key.pk)

    @admin.action(description="Revoke selected API keys", permissions=["change"])
    def revoke_selected(
        self, request: HttpRequest, queryset: QuerySet[ApiKey]
    ) -> HttpResponse | None:
        """Ask first, then end the keys' lives."""
        if not self.is_confirmed(request):
            return self.ask(request, queryset.filter(revoked_at__isnull=True), _REVOKE)
        return self.carry_out(request, queryset, _revoke_one, "Revoked")

    @button("Revoke", permissions=["change"], icon="key_off", is_dangerous=True)
    def revoke_this(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask about the one whose page it is."""
        return self.ask_about(request, object_id, _REVOKE)


def _revoke_one(key: ApiKey) -> bool:
    return revoke(ApiKey.objects.filter(pk=key.pk)) > 0
