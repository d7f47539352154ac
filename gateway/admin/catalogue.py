"""The model catalogue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from gateway.admin.connections import Check, ConnectionAdmin
from gateway.admin.lines import NamesField, at_line, lines_of
from gateway.admin.links import change_link
from gateway.admin.pages import NudgingAdmin
from gateway.admin.theme import ChoiceFilter, YesNoFilter, link
from inference.catalogue import ModelEntry, load_catalogue, load_upstreams
from inference.fallbacks import fallback_fault
from inference.models import Model, Upstream
from inference.transport.nudge import Topic
from inference.upstreams import read_options

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Model]
else:
    _ModelForm = forms.ModelForm

_SAMPLING = ("temperature", "top_p", "top_k")
_EFFECT = (
    "What callers are told changes at once. An engine reads its entry when it starts: {} for the "
    "rest."
)


class ModelForm(_ModelForm):
    """One catalogue entry, checked against the others."""

    class Meta:
        """Aliases are typed as lines."""

        model = Model
        fields = "__all__"
        field_classes: ClassVar = {"aliases": NamesField}

    def clean_engine_options(self) -> dict[str, Any]:
        """Accept an object only."""
        options = self.cleaned_data["engine_options"]
        if not isinstance(options, dict):
            raise forms.ValidationError(
                'Must be a JSON object, such as {"dtype": "float32", "max_model_len": 2048}.'
            )
        return options

    def clean_upstream_options(self) -> dict[str, Any]:
        """Accept the options that there are only."""
        options: dict[str, Any] = self.cleaned_data["upstream_options"] or {}
        try:
            read_options(options)
        except ValueError as error:
            raise forms.ValidationError(f"{error}.") from None
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
        """Refuse names that another model has, and a model without what runs it."""
        super().clean()
        data = self.cleaned_data
        if data.get("backend") == Model.Backend.VLLM and not data.get("weights"):
            self.add_error("weights", "A vLLM model needs the folder of its weights.")
        is_silent = data.get("backend") == Model.Backend.VLLM and not data.get("tool_parser")
        if is_silent and data.get("mcp_servers"):
            self.add_error("mcp_servers", "A vLLM model calls tools by its tool parser only.")
        self._check_fallback(data.get("fallback"))
        is_upstream = data.get("backend") in (Model.Backend.OPENAI, Model.Backend.ANTHROPIC)
        if is_upstream != bool(data.get("upstream")) and "upstream" not in self.errors:
            message = "This backend needs one." if is_upstream else "This backend runs here."
            self.add_error("upstream", message)
        own_id = data.get("id", self.instance.id)
        if not own_id:
            return
        self._check_names(own_id)

    def _check_names(self, own_id: str) -> None:
        """Refuse an id and aliases by which callers reach another model."""
        taken: dict[str, str] = {}
        for other, aliases in Model.objects.exclude(pk=own_id).values_list("id", "aliases"):
            taken |= {alias.lower(): f"is an alias of the model {other}" for alias in aliases}
            taken[other.lower()] = f"is the id of the model {other}"
        if (how := taken.get(own_id.lower())) and "id" in self.fields:
            self.add_error("id", f"“{own_id}” {how} already. Choose another.")
        # As typed, and not as cleaned: faults are named by their lines.
        for line in lines_of(self.data.get(self.add_prefix("aliases")) or ""):
            if how := taken.get(line.text.lower()):
                text = f"“{line.text}” {how} already. Choose another name, or take it away there."
                self.add_error("aliases", at_line(line.number, text))

    def _check_fallback(self, fallback: Model | None) -> None:
        """Refuse a chain, of which only the first link would hold, and a circle."""
        own_id = self.cleaned_data.get("id", self.instance.id)
        if fallback is not None and own_id:
            links = Model.objects.exclude(pk=own_id).values_list("id", "fallback_id")
            fault = fallback_fault(own_id, {**dict(links), own_id: fallback.pk})
            if fault:
                self.add_error("fallback", f"{fault} Choose a model that has none and is none.")


@admin.register(Model)
class CatalogueAdmin(NudgingAdmin):
    """What this install serves. The id is the model's identity: it is set once."""

    topic = Topic.CATALOGUE
    form = ModelForm
    list_display = [
        *("id", "other_names", "called", "backend", "context_tokens", "capacity"),
        "enabled",
    ]
    list_filter = [("backend", ChoiceFilter), ("enabled", YesNoFilter)]
    search_fields = ["id", "display_name", "aliases"]
    search_help_text = "An id, an alias or a display name."
    fieldsets = [
        (None, {"fields": ["id", "display_name", "aliases", "enabled"]}),
        ("Engine", {"fields": ["backend", "weights", "context_tokens", "engine_options"]}),
        (
            "Upstream",
            {
                "fields": ["upstream", "upstream_model", "upstream_options"],
                "description": "Of models that others run. <code>capacity</code> is how many "
                "requests one engine worker has there at the same time.",
            },
        ),
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
            "When it cannot answer",
            {
                "fields": ["fallback"],
                "description": "The fallback answers realtime and flex requests that have got "
                "nothing of an answer yet, and the caller is told.",
            },
        ),
        (
            "Targets for realtime",
            {
                "fields": [
                    *("ttft_target_ms", "ttft_target_factor"),
                    *("itl_target_ms", "itl_target_factor"),
                ],
                "description": "What they are to see of time, however much work runs beside them.",
            },
        ),
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
            "Tools that the server runs",
            {
                "fields": ["mcp_servers", "offer_mcp_tools", "tool_recursion_limit"],
                "description": "Engine workers connect to the servers when they start.",
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

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
        """Save, and say when a change takes effect."""
        super().save_model(request, obj, form, change)
        if change and form.has_changed():
            engines = link(reverse("admin:engines"), "reload it")
            self.message_user(request, format_html(_EFFECT, engines), messages.INFO)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Keep the id: saving under another one would make a second model."""
        return ["id"] if obj else []

    @admin.display(description="display name", ordering="display_name")
    def called(self, model: Model) -> SafeString | str:
        """Return the way to it under the name that people read, if it has one."""
        return change_link(model, model.display_name) if model.display_name else "-"

    @admin.display(description="aliases")
    def other_names(self, model: Model) -> str:
        """Return what else callers may call it."""
        return ", ".join(model.aliases) or "-"


@admin.register(Upstream)
class UpstreamAdmin(ConnectionAdmin):
    """Providers of models that others run. A key is referred to, and never shown."""

    topic = Topic.CATALOGUE
    shell_command = "check_engine MODEL"
    list_display = ["name", "base_url", "key", "requests_per_minute"]
    search_fields = ["name", "base_url"]
    fieldsets = [
        (None, {"fields": ["name", "base_url", "key"]}),
        ("Patience", {"fields": ["connect_timeout_s", "read_timeout_s", "retries"]}),
        ("Load", {"fields": ["requests_per_minute"]}),
    ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Keep the name: saving under another one would make a second upstream."""
        return ["name"] if obj else []

    def connection_checks(self, names: Sequence[str]) -> list[Check]:
        """Ask each upstream's enabled models for the beginning of an answer."""
        # The providers' clients are large, and a gateway needs them for nothing else.
        from inference.backends.upstream_check import check_upstream

        upstreams, models = load_upstreams(), defaultdict[str, list[ModelEntry]](list)
        for entry in load_catalogue().entries:
            if entry.upstream is not None:
                models[entry.upstream.name].append(entry)
        return [partial(check_upstream, upstreams[name], models[name]) for name in names]
