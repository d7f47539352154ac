"""Prices: versions that are added, and stay as they were once they have begun."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest
from django.utils import timezone

from gateway.admin.filters import ModelFilter
from gateway.admin.money import UnitsField, units
from gateway.admin.pages import ExportingAdmin, NudgingAdmin
from gateway.admin.theme import Select, SplitDateTime
from inference.models import Model
from inference.transport.nudge import Topic
from jobs.models import Price

if TYPE_CHECKING:
    _PriceForm = forms.ModelForm[Price]
else:
    _PriceForm = forms.ModelForm

_PER = "In units, for a million tokens."
# Someone who types micro-units for units is off by a million; nobody's tokens cost this much.
_IMPLAUSIBLE_MICROS = 10_000 * 1_000_000
# A form that says "now" by the clock takes a while to be sent.
_GRACE = timedelta(minutes=5)


def sanity(price: Price) -> str:
    """Say in plain words what tokens cost."""
    return (
        f"A million tokens cost {units(price.input_micros_per_mtok)} as input, "
        f"{units(price.cached_input_micros_per_mtok)} as input from the cache, "
        f"{units(price.cache_write_micros_per_mtok)} as input written to the cache and "
        f"{units(price.output_micros_per_mtok)} as output; in the batch lane "
        f"{_scaled(price.input_micros_per_mtok, price.batch_permille)} as input and "
        f"{_scaled(price.output_micros_per_mtok, price.batch_permille)} as output."
    )


def _scaled(micros: int, permille: int) -> str:
    return units(micros * permille // 1000)


class PriceForm(_PriceForm):
    """A version of a model's price, in units."""

    model = forms.ChoiceField(widget=Select)
    input_micros_per_mtok = UnitsField(label="Input", min_value=0, help_text=_PER)
    cached_input_micros_per_mtok = UnitsField(
        label="Input from the cache", min_value=0, help_text=_PER
    )
    cache_write_micros_per_mtok = UnitsField(
        label="Input written to the cache", min_value=0, help_text=_PER
    )
    output_micros_per_mtok = UnitsField(label="Output", min_value=0, help_text=_PER)
    effective_from = forms.SplitDateTimeField(
        required=False, widget=SplitDateTime, help_text="In UTC. Empty: from now on."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is None:
            self.initial.pop("effective_from", None)
        names = {*Model.objects.values_list("id", flat=True), self.instance.model} - {""}
        if "model" in self.fields:
            self.fields["model"].choices = [(name, name) for name in sorted(names)]  # type: ignore[attr-defined]

    def clean_effective_from(self) -> datetime:
        """Let no version begin in the past, where requests were already billed."""
        moment: datetime | None = self.cleaned_data["effective_from"]
        now = timezone.now()
        if moment is not None and moment < now - _GRACE:
            raise forms.ValidationError("Must not lie in the past: what was billed stays billed.")
        return max(moment or now, now)


@admin.register(Price)
class PriceAdmin(ExportingAdmin, NudgingAdmin):
    """A version that has begun is never changed or deleted: add the next one."""

    topic = Topic.PRICES
    form = PriceForm
    list_display = ["model", "effective_from", "input", "cached", "output", "in_force"]
    list_filter = [ModelFilter]
    readonly_fields = ["in_words"]
    export_columns = (
        *("id", "model", "effective_from", "input_micros_per_mtok"),
        *("cached_input_micros_per_mtok", "cache_write_micros_per_mtok"),
        *("output_micros_per_mtok", "flex_permille", "background_permille", "batch_permille"),
    )
    prices = (
        "input_micros_per_mtok",
        "cached_input_micros_per_mtok",
        "cache_write_micros_per_mtok",
        "output_micros_per_mtok",
    )
    fieldsets = [
        (None, {"fields": ["model", "effective_from"]}),
        ("Price", {"fields": prices}),
        (
            "Factors of the slower lanes",
            {
                "fields": ["flex_permille", "background_permille", "batch_permille"],
                "description": "In thousandths: 500 is half the price.",
            },
        ),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show in words what a version that exists means."""
        return [*self.fieldsets, *([("In words", {"fields": ["in_words"]})] if obj else [])]

    def has_change_permission(self, request: HttpRequest, obj: Price | None = None) -> bool:
        """Only before it begins."""
        return super().has_change_permission(request, obj) and _is_still_to_come(obj)

    def has_delete_permission(self, request: HttpRequest, obj: Price | None = None) -> bool:
        """Only before it begins."""
        return super().has_delete_permission(request, obj) and _is_still_to_come(obj)

    def save_model(self, request: HttpRequest, obj: Price, form: Any, change: bool) -> None:
        """Save, and repeat in words what was typed."""
        super().save_model(request, obj, form, change)
        highest = max(getattr(obj, name) for name in self.prices)
        level = messages.WARNING if highest >= _IMPLAUSIBLE_MICROS else messages.INFO
        self.message_user(request, sanity(obj), level)

    @admin.display(description="in words")
    def in_words(self, price: Price) -> str:
        """Return what tokens cost."""
        return sanity(price)

    @admin.display(description="input, per million")
    def input(self, price: Price) -> str:
        """Return units."""
        return units(price.input_micros_per_mtok)

    @admin.display(description="from the cache")
    def cached(self, price: Price) -> str:
        """Return units."""
        return units(price.cached_input_micros_per_mtok)

    @admin.display(description="output, per million")
    def output(self, price: Price) -> str:
        """Return units."""
        return units(price.output_micros_per_mtok)

    @admin.display(description="has begun", boolean=True)
    def in_force(self, price: Price) -> bool:
        """Return whether it has begun."""
        return not _is_still_to_come(price)


def _is_still_to_come(price: Price | None) -> bool:
    return price is None or price.effective_from > timezone.now()
