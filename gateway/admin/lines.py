"""Lists as people type them: one entry on each line. The database keeps a JSON list of texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from django import forms
from django.core.exceptions import ValidationError

_BREAK = re.compile(r"\r\n?|\n")
_FOREIGN = frozenset(",;\"'")


class Line(NamedTuple):
    """An entry, and the line that it is on, counted from 1."""

    number: int
    text: str


def lines_of(typed: str) -> Iterator[Line]:
    """Yield the lines that are not empty, without the spaces around them."""
    for number, line in enumerate(_BREAK.split(typed), start=1):
        if text := line.strip():
            yield Line(number, text)


def at_line(number: int, text: str) -> ValidationError:
    """Return the fault of one line."""
    return ValidationError(f"Line {number}: {text}")


def _kept(line: Line, entry: str) -> str:
    """Return an entry if the database can keep it."""
    try:
        entry.encode()
    except UnicodeEncodeError:
        raise at_line(line.number, "this is no text.") from None
    if not entry or "\0" in entry:
        raise at_line(line.number, "this is empty, or has a null character in it.")
    return entry


class LinesField(forms.JSONField):
    """A list of texts; what an entry may be, `read` says."""

    def prepare_value(self, value: Any) -> Any:
        """Show a list by its lines; what was typed stays as it is."""
        if isinstance(value, list):
            return "\n".join(self.write(entry) for entry in value)
        return value

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Show what was typed as it was."""
        return data

    def to_python(self, value: Any) -> Any:
        """Return the entries, in their order. Raises one error for each line that is none."""
        entries, faults = [], []
        for line in lines_of(value or ""):
            try:
                entries.append(_kept(line, self.read(line)))
            except ValidationError as fault:
                faults.append(fault)
        if faults:
            raise ValidationError(faults)
        return entries

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare entries; what cannot be read is a change."""
        try:
            return bool(self.to_python(data) != (initial or []))
        except ValidationError:
            return True

    def read(self, line: Line) -> str:
        """Return the entry that a line is. Raises `ValidationError` naming the line."""
        return line.text

    def write(self, entry: Any) -> str:
        """Return the line that `read` reads as this entry."""
        return str(entry)


class NamesField(LinesField):
    """Names, each once whatever its case."""

    def to_python(self, value: Any) -> Any:
        """Return the names. Raises for one that is there twice, too."""
        names = super().to_python(value)
        seen: dict[str, int] = {}
        for line in lines_of(value or ""):
            first = seen.setdefault(line.text.lower(), line.number)
            if first != line.number:
                raise at_line(line.number, f"“{line.text}” is on line {first} already.")
        return names

    def read(self, line: Line) -> str:
        """Refuse what somebody types who means several names, or JSON."""
        is_one = not (_FOREIGN & set(line.text) or line.text.startswith("["))
        if not is_one or any(sign.isspace() for sign in line.text):
            raise at_line(
                line.number,
                f"“{line.text}” is not one name. Write each name on a line of its own, without "
                "spaces, commas, quotation marks or brackets around it.",
            )
        return line.text


class ArgumentsField(LinesField):
    """A program and its arguments. What a line cannot hold is written as a JSON string."""

    def read(self, line: Line) -> str:
        """Return an argument; a line that begins with a quotation mark is a JSON string."""
        if not line.text.startswith('"'):
            return line.text
        try:
            text = json.loads(line.text)
        except ValueError:
            raise at_line(
                line.number,
                'what begins with " must end with it, and is read as a JSON string.',
            ) from None
        return str(text)

    def write(self, entry: Any) -> str:
        """Quote what `read` would not read as it is."""
        text = str(entry)
        is_plain = text.strip() == text != "" and text[0] != '"' and not _BREAK.search(text)
        return text if is_plain else json.dumps(text, ensure_ascii=False)
