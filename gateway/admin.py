"""The admin site: teams, API keys and the model catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import model_ngettext
from django.db.models import Model as DjangoModel
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html

from gateway.keys import give_secret, revoke
from gateway.models import ApiKey, Team
from gateway.nudges import nudge_on_commit
from inference.models import Model
from inference.names import claimed_twice
from inference.transport.nudge import Topic

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
    _ModelForm = forms.ModelForm[Model]
else:
    _ModelAdmin = admin.ModelAdmin
    _ModelForm = forms.ModelForm

admin.site.site_header = "Tandem"
admin.site.site_title = "Tandem"
admin.site.index_title = "Operate"


class NudgingAdmin(_ModelAdmin):
    """Tells the gateways of every change, so that they act on it at once."""

    topic: ClassVar[Topic]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save and tell."""
        super().save_model(request, obj, form, change)
        nudge_on_commit(self.topic)

    def delete_model(self, request: HttpRequest, obj: DjangoModel) -> None:
        """Delete one and tell."""
        super().delete_model(request, obj)
        nudge_on_commit(self.topic)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete several and tell."""
        super().delete_queryset(request, queryset)
        nudge_on_commit(self.topic)


@admin.register(Team)
class TeamAdmin(NudgingAdmin):
    """Teams. One that has keys cannot be deleted, because keys cannot."""

    topic = Topic.KEYS
    list_display = ["name", "created_at"]
    search_fields = ["name"]


@admin.register(ApiKey)
class ApiKeyAdmin(NudgingAdmin):
    """Keys are made and revoked, never changed or deleted: who called stays known."""

    topic = Topic.KEYS
    list_display = ["name", "prefix", "team", "created_at", "revoked_at"]
    list_filter = ["team", ("revoked_at", admin.EmptyFieldListFilter)]
    list_select_related = ["team"]
    search_fields = ["name", "prefix"]
    autocomplete_fields = ["team"]
    actions = ["revoke_selected"]
    shown = ["prefix", "created_at", "revoked_at"]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Ask a new key for its name and team only."""
        return ["name", "team", *(self.shown if obj else [])]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Change nothing of a key that exists."""
        return self.get_fields(request, obj) if obj else []

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Keys are revoked instead."""
        return False

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """Give a new key its secret and show it, this once."""
        if change:
            return
        plaintext = give_secret(obj)
        super().save_model(request, obj, form, change)
        self.message_user(
            request,
            format_html("Copy the key now, it is not shown again: <code>{}</code>", plaintext),
            messages.WARNING,
        )

    @admin.action(description="Revoke selected API keys", permissions=["change"])
    def revoke_selected(
        self, request: HttpRequest, queryset: QuerySet[ApiKey]
    ) -> TemplateResponse | None:
        """Ask first, then end the keys' lives."""
        if request.POST.get("confirmed"):
            count = revoke(queryset)
            noun = model_ngettext(self.opts, count)
            self.message_user(request, f"Revoked {count} {noun}.", messages.SUCCESS)
            return None
        context = self.admin_site.each_context(request) | {
            "title": "Revoke these API keys?",
            "keys": queryset.filter(revoked_at__isnull=True),
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/gateway/apikey/revoke_selected.html", context)


_SAMPLING = ("temperature", "top_p", "top_k")


class ModelForm(_ModelForm):
    """One catalogue entry, checked against the others."""

    def clean_aliases(self) -> list[str]:
        """Accept a list of names only."""
        aliases = self.cleaned_data["aliases"]
        if not isinstance(aliases, list) or not all(
            isinstance(alias, str) and alias.strip() == alias != "" for alias in aliases
        ):
            raise forms.ValidationError(
                'Must be a JSON list of names, such as ["fast", "claude-sonnet-4-5"].'
            )
        return aliases

    def clean_engine_options(self) -> dict[str, Any]:
        """Accept an object only."""
        options = self.cleaned_data["engine_options"]
        if not isinstance(options, dict):
            raise forms.ValidationError(
                'Must be a JSON object, such as {"dtype": "float32", "max_model_len": 2048}.'
            )
        return options

    def clean_default_sampling(self) -> dict[str, float]:
        """Accept numbers for the three parameters only."""
        sampling = self.cleaned_data["default_sampling"]
        if not isinstance(sampling, dict) or not all(
            name in _SAMPLING and type(value) in (int, float) for name, value in sampling.items()
        ):
            raise forms.ValidationError(
                f'Numbers for {", ".join(_SAMPLING)} as a JSON object, such as {{"top_p": 0.9}}.'
            )
        return sampling

    def clean(self) -> None:
        """Refuse names that another model has, and a vLLM model without weights."""
        super().clean()
        data = self.cleaned_data
        if data.get("backend") == Model.Backend.VLLM and not data.get("weights"):
            self.add_error("weights", "A vLLM model needs the folder of its weights.")
        own_id = data.get("id", self.instance.id)
        if not own_id:
            return
        others = Model.objects.exclude(pk=own_id).values_list("id", "aliases")
        own = (own_id, data.get("aliases", []))
        for name, ids in claimed_twice([own, *others]).items():
            if own_id in ids:
                taken_by = ", ".join(other for other in ids if other != own_id)
                field = "id" if name == own_id.lower() else "aliases"
                message = f"The name {name!r} is taken by {taken_by}."
                self.add_error(field if field in self.fields else None, message)


@admin.register(Model)
class CatalogueAdmin(NudgingAdmin):
    """What this install serves. The id is the model's identity: it is set once."""

    topic = Topic.CATALOGUE
    form = ModelForm
    list_display = ["id", "display_name", "backend", "context_tokens", "capacity", "enabled"]
    list_filter = ["backend", "enabled"]
    search_fields = ["id", "display_name"]
    fieldsets = [
        (None, {"fields": ["id", "display_name", "aliases", "enabled"]}),
        ("Engine", {"fields": ["backend", "weights", "context_tokens", "engine_options"]}),
        (
            "Prefix cache",
            {
                "fields": ["kv_offload_gib", "kv_offload_dir"],
                "description": "What the engine's device has no more room for. Not every device "
                "can: <code>check_engine</code> tells.",
            },
        ),
        ("Load", {"fields": ["capacity", "max_waiting", "workers"]}),
        (
            "What the model can do",
            {
                "fields": [
                    *("vision", "images_without_vision"),
                    *("reasoning", "reasoning_parser"),
                    *("tool_parser", "describe_tools"),
                    *("chat_template", "default_sampling"),
                ]
            },
        ),
        (
            "Canary",
            {
                "fields": ["canary_prompt", "canary_expect"],
                "description": "An engine that does not give the expected answer does not serve.",
            },
        ),
    ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Keep the id: saving under another one would make a second model."""
        return ["id"] if obj else []
