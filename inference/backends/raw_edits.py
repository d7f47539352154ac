"""What an operator has changed of a Messages request that travels as its caller sent it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from inference.backends.json_spans import (
    Change,
    Span,
    changed,
    elements,
    member,
    with_existing,
    with_members,
)

# Claude Code's attribution; its provider reads it only where it is first.
_BILLING_HEADER = "x-anthropic-billing-header"
COUNTED = frozenset(
    {"thinking", "tool_choice", "tools", "output_config", "output_format", "context_management"}
)
"""The parameters that counting takes: it refuses fields that change nothing of the prompt."""

_encode = msgspec.json.Encoder().encode


class Edits(msgspec.Struct, frozen=True, kw_only=True):
    """`model` is its name at the upstream; `system` goes before what the caller's system prompt
    says, and `parameters` take the place of fields, whatever the caller said."""

    model: str
    system: str = ""
    parameters: Mapping[str, Any] = {}


def edited(body: bytes, edits: Edits, *, counting: bool = False) -> bytes:
    """Return the body for the upstream: but for the edits, every byte is as it was.

    Counting takes those parameters only that it knows. Raises `ValueError` for no JSON object.
    """
    values = {"model": _encode(edits.model)}
    for name, value in edits.parameters.items():
        if not counting or name in COUNTED:
            values[name] = _encode(value)
    if edits.system:
        where = member(body, "system")
        system = b"null" if where is None else body[where.start : where.end]
        values["system"] = _with_system(system, edits.system)
    return with_members(body, values)


def renamed(text: bytes, model: str) -> bytes:
    """Return an upstream's message with the name that callers know the model by."""
    return with_existing(text, {"model": _encode(model)})


def _with_system(system: bytes, prompt: str) -> bytes:
    """Put the operator's prompt before the caller's, which stays the bytes that it is.

    What the upstream will refuse anyway is left to it.
    """
    block = _encode({"type": "text", "text": prompt})
    if system in (b"null", b'""'):
        return _encode(prompt)
    if system.startswith(b'"'):
        theirs = b'{"type":"text","text":' + system + b"}"
        both = [theirs, block] if _is_billing_header(theirs) else [block, theirs]
        return b"[" + b",".join(both) + b"]"
    if system.startswith(b"["):
        return _with_block(system, block)
    return system


def _with_block(system: bytes, block: bytes) -> bytes:
    first = next(elements(system), None)
    if first is None:
        return b"[" + block + b"]"
    if _is_billing_header(system[first.start : first.end]):
        return changed(system, [Change(Span(first.end, first.end), b"," + block)])
    return changed(system, [Change(Span(first.start, first.start), block + b",")])


def _is_billing_header(block: bytes) -> bool:
    match msgspec.json.decode(block):
        case {"text": str(text)}:
            return text.startswith(_BILLING_HEADER)
    return False
