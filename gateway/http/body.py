"""What every JSON request body must be, before any dialect looks inside it."""

from __future__ import annotations

import codecs
from typing import Any

import msgspec

from inference.errors import ErrorCode, TandemError

MAX_DEPTH = 64
"""Objects and arrays inside one another; the body itself is the first."""

MAX_BRACKETS = 1_000_000
"""Opening brackets in all, those inside strings too. Ten million empty lists fit into 32 MB and
would hold the event loop for many seconds; text with so many is beyond any model's context."""


def check_content_type(value: bytes | None) -> None:
    """Accept JSON media types with any parameters. Raises INVALID_REQUEST for others."""
    if value is None:
        raise _invalid("Content-Type must be application/json, and the request has none")
    media_type = value.partition(b";")[0].strip().lower()
    is_json_suffix = media_type.startswith(b"application/") and media_type.endswith(b"+json")
    if media_type != b"application/json" and not is_json_suffix:
        shown = value.decode("ascii", "replace")
        raise _invalid(f"Content-Type must be application/json, not {shown}")


def check_content_encoding(value: bytes | None) -> None:
    """Accept bodies as they are. Raises INVALID_REQUEST for compressed ones."""
    if value is not None and value.strip().lower() not in (b"", b"identity"):
        shown = value.decode("ascii", "replace")
        raise _invalid(
            f"Content-Encoding must be identity, not {shown}: send the body uncompressed"
        )


def decode_object(raw: bytes) -> dict[str, Any]:
    """Decode one JSON object whose strings are all valid Unicode.

    A byte order mark is skipped; of a repeated key the last value wins. Raises
    INVALID_REQUEST for anything that is not strict JSON in UTF-8, is not an object, is nested
    deeper than `MAX_DEPTH` or has more than `MAX_BRACKETS`.
    """
    if not raw.strip():
        raise _invalid("The request body is empty; it must be a JSON object")
    text = raw.removeprefix(codecs.BOM_UTF8)
    _check_brackets(text)
    try:
        value = msgspec.json.decode(text)
    except msgspec.ValidationError:
        raise _invalid("The request body holds a number that is out of range") from None
    except msgspec.DecodeError:
        raise _invalid(_explain(text)) from None
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(value, dict):
        raise _invalid("The request body must be a JSON object")
    _check_depth(value)
    return value


def _check_brackets(text: bytes) -> None:
    if text.count(b"{") + text.count(b"[") > MAX_BRACKETS:
        raise _invalid(f"The request body has more than {MAX_BRACKETS:,} opening brackets")


def _explain(text: bytes) -> str:
    """Say what is wrong with a body that does not decode, and at which byte."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"The request body is not valid UTF-8 (byte {error.start})"
    try:
        # With room behind it, an escape that is wrong near the end does not read as a cut.
        msgspec.json.decode(text + b" " * 16)
    except msgspec.DecodeError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        if "truncated" in reason:
            reason = f"unexpected end of input (byte {len(text)})"
    return f"The request body is not valid JSON: {reason}"


def _check_depth(root: dict[str, Any]) -> None:
    """Walk level by level, so that depth costs no stack."""
    level: list[Any] = [root]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> TandemError:
    return _invalid(f"The request body is nested deeper than {MAX_DEPTH} levels")


def _invalid(message: str) -> TandemError:
    return TandemError(ErrorCode.INVALID_REQUEST, message)
