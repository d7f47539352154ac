"""What tools say, as text."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from inference.mcp.results import cut, outcome

TEXT = TextContent(type="text", text="noon")


def _resource(contents: TextResourceContents | BlobResourceContents) -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=contents)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], ""),
        ([TEXT, TEXT], "noon\nnoon"),
        ([_resource(TextResourceContents(uri="file:///a", text="inside"))], "inside"),
        (
            [_resource(BlobResourceContents(uri="file:///a", blob="AA=="))],
            "[omitted: the resource file:///a]",
        ),
        ([ResourceLink(type="resource_link", name="a", uri="file:///a")], "[a: file:///a]"),
        (
            [TEXT, ImageContent(type="image", data="AA==", mime_type="image/png")],
            "noon\n[omitted: image]",
        ),
    ],
)
def test_every_kind_of_content_has_a_text(content: list[Any], text: str) -> None:
    assert outcome(CallToolResult(content=content)) == (text, False)


def test_structured_content_is_told_where_there_is_no_other() -> None:
    value = {"zone": "Zürich"}
    assert outcome(CallToolResult(content=[], structured_content=value)).text == (
        '{"zone": "Zürich"}'
    )
    assert outcome(CallToolResult(content=[TEXT], structured_content=value)).text == "noon"


def test_what_cannot_be_sent_is_replaced() -> None:
    assert cut("a\ud83d", 100) == "a?"


def test_an_error_stays_one() -> None:
    assert outcome(CallToolResult(content=[TEXT], is_error=True)).is_error


@pytest.mark.parametrize(
    ("max_bytes", "kept"), [(6, "äöü"), (5, "äö\n[cut: the first 5 of 6 bytes]")]
)
def test_a_text_is_cut_between_characters(max_bytes: int, kept: str) -> None:
    assert cut("äöü", max_bytes) == kept
