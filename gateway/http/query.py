"""Reads parameters of a query string, or the fields of a form, that are more than text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.dialects.validation import invalid_at


def integer(
    fields: Mapping[str, str], name: str, default: int, *, at_least: int, at_most: int
) -> int:
    """Return a whole number. Raises INVALID_REQUEST if it is none or out of bounds."""
    text = fields.get(name)
    if text is None:
        return default
    # int() refuses thousands of digits with an error of its own.
    if not re.fullmatch(r"-?[0-9]{1,15}", text) or not at_least <= int(text) <= at_most:
        raise invalid_at(name, f"Input should be an integer from {at_least} to {at_most}")
    return int(text)


def boolean(query: Mapping[str, str], name: str) -> bool:
    """Return whether a flag is set. Raises INVALID_REQUEST for what is neither."""
    text = query.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise invalid_at(name, "Input should be true or false")
    return text in ("true", "1")


def newest_first(query: Mapping[str, str]) -> bool:
    """Return the order of a list, descending unless told. Raises INVALID_REQUEST."""
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise invalid_at("order", "Input should be 'asc' or 'desc'")
    return order == "desc"
