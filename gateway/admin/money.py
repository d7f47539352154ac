"""Money as people read and type it: units of the currency, kept as whole micro-units."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms

from gateway.admin.theme import NumberInput

_PLACES = 6


def units(micros: int | None) -> str:
    """Return `1,234.567890` for 1,234,567,890 micro-units, and a dash for none."""
    return "-" if micros is None else f"{_as_units(micros):,.{_PLACES}f}"


class UnitsField(forms.DecimalField):
    """Asks for units, to the micro-unit, and gives whole micro-units."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            max_digits=15,
            decimal_places=_PLACES,
            widget=NumberInput({"inputmode": "decimal", "step": "any"}),
            **options,
        )

    def prepare_value(self, value: Any) -> Any:
        """Show micro-units as units; what was typed stays as it is."""
        return f"{_as_units(value):.{_PLACES}f}" if isinstance(value, int) else value

    def clean(self, value: Any) -> Any:
        """Return micro-units, or None where nothing was typed."""
        typed: Decimal | None = super().clean(value)
        return None if typed is None else int(typed.scaleb(_PLACES))

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare in units."""
        return super().has_changed(_as_units(initial) if isinstance(initial, int) else None, data)


def _as_units(micros: int) -> Decimal:
    return Decimal(micros).scaleb(-_PLACES)
