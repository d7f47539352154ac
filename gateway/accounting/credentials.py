"""Keys of other services in the body of a request, which no record may keep.

Callers send them with MCP servers that they bring along: Anthropic's `mcp_servers`, and OpenAI's
tools of type `mcp`, whether or not anybody here makes use of them.
"""

from __future__ import annotations

import codecs
from typing import Any

import msgspec

HIDDEN = "[hidden]"
# Letters may also be written by their numbers, though nobody does.
_ESCAPED = (b"\\u004", b"\\u005", b"\\u006", b"\\u007")
_MARKS = (b'"mcp_servers"', b'"mcp"', *_ESCAPED)
_FIELDS = (b'"authorization_token"', b'"authorization"', b'"headers"', *_ESCAPED)


def hide_in_body(body: bytes) -> bytes:
    """Return a body, which is a JSON object, as it may be kept: as it was sent, where it can be."""
    if not any(mark in body for mark in _MARKS):
        return body
    sent = msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8))
    kept = hide_credentials(sent)
    # Of a name that comes twice only the last is decoded; both may have keys.
    is_plain = kept == sent and not any(field in body for field in _FIELDS)
    return body if is_plain else msgspec.json.encode(kept)


def hide_credentials(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a decoded body without such keys."""
    return {name: _hidden(name, value) for name, value in obj.items()}


def _hidden(name: str, value: Any) -> Any:
    if not isinstance(value, list) or name not in ("mcp_servers", "tools"):
        return value
    fields = ("authorization_token",) if name == "mcp_servers" else ("authorization", "headers")
    return [_entry(entry, fields) if _has_keys(name, entry) else entry for entry in value]


def _has_keys(name: str, entry: Any) -> bool:
    return isinstance(entry, dict) and (name == "mcp_servers" or entry.get("type") == "mcp")


def _entry(entry: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return entry | {field: HIDDEN for field in fields if entry.get(field)}
