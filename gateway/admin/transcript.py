"""What a request said and what was answered, for an operator's eyes."""

from __future__ import annotations

from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from gateway.admin.screens.conversation import pretty
from gateway.admin.screens.said import Sources, said_by
from gateway.control.answers import render_body, render_result
from jobs.models import RequestRecord

# No text that people write is one long word.
_SHOWN_OF_DATA = 40


def transcript(record: RequestRecord) -> SafeString:
    """Return body and answer as JSON, without the bytes of images."""
    said = said_by(Sources(record.team_id, record, None, None))
    answer = None if said.answer is None else tuple(said.answer)
    return format_html(
        "<h3>Request</h3>{}<h3>Answer</h3>{}",
        _shown(render_body(said.body), said.why_not),
        _shown(render_result(record, answer), said.why_not),
    )


def _shown(value: Any, why_not: str) -> SafeString:
    if value is None:
        return format_html("<p>Not kept. {}</p>", why_not)
    text = pretty(without_images(value))
    return format_html('<pre style="white-space: pre-wrap">{}</pre>', text)


def without_images(value: Any) -> Any:
    """Return the same with every image's bytes, and every data URL's, cut short."""
    match value:
        case {"type": "base64", "data": str(data)}:
            return value | {"data": _cut(data)}
        case dict():
            return {name: without_images(inner) for name, inner in value.items()}
        case list():
            return [without_images(inner) for inner in value]
        case str() if value.startswith("data:"):
            return _cut(value)
    return value


def _cut(data: str) -> str:
    if len(data) <= _SHOWN_OF_DATA:
        return data
    return f"{data[:_SHOWN_OF_DATA]}… ({len(data):,} characters)"
