"""JSON as people type it into a form: refused where the database could not hold it."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.forms.fields import InvalidJSONInput


class JsonField(forms.JSONField):
    """Refuses what PostgreSQL has no place for, and what is nested too deeply to be read."""

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Show what was typed as it was."""
        if self.disabled:
            return initial
        return None if data is None else InvalidJSONInput(data)

    def to_python(self, value: Any) -> Any:
        """Return what was typed, decoded."""
        try:
            decoded = super().to_python(value)
            # Half a surrogate pair is no text, and no number is infinite, or none.
            json.dumps(decoded, ensure_ascii=False, allow_nan=False).encode()
            if _has_null(decoded):
                raise forms.ValidationError("Null characters are not allowed.")
        except (RecursionError, ValueError) as error:
            raise forms.ValidationError(
                self.error_messages["invalid"], code="invalid", params={"value": "…"}
            ) from error
        return decoded


def _has_null(value: Any) -> bool:
    match value:
        case str():
            return "\0" in value
        case list():
            return any(map(_has_null, value))
        case dict():
            return any(_has_null(each) for item in value.items() for each in item)
        case _:
            return False
