"""What a call of a server's tool came to, as text for the model and the caller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)


class Outcome(NamedTuple):
    """What a call came to. An error is for the model to see: it may call otherwise."""

    text: str
    is_error: bool = False


def outcome(result: CallToolResult) -> Outcome:
    """Return a result's text; what is no text is named in its place."""
    texts = list(_texts(result.content))
    if not texts and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return Outcome("\n".join(texts), result.is_error)


def cut(text: str, max_bytes: int) -> str:
    """Return no more than that of a text, in UTF-8, and a note if there was more."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data.decode()
    kept = data[:max_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[cut: the first {max_bytes} of {len(data)} bytes]"


def _texts(content: list[Any]) -> Iterator[str]:
    for block in content:
        match block:
            case TextContent(text=text):
                yield text
            case EmbeddedResource(resource=TextResourceContents(text=text)):
                yield text
            case EmbeddedResource(resource=BlobResourceContents(uri=uri)):
                yield f"[omitted: the resource {uri}]"
            case ResourceLink(uri=uri, name=name):
                yield f"[{name}: {uri}]"
            case _:
                yield f"[omitted: {block.type}]"
