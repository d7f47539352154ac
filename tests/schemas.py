"""The published document with its answers closed: a field that it does not tell is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]


def close_answers(document: Document) -> Document:
    """Forbid other fields in whatever the answers refer to. Changes and returns the document."""
    schemas = document["components"]["schemas"]
    operations = [each for path in document["paths"].values() for each in path.values()]
    waiting = set(_references([operation["responses"] for operation in operations]))
    closed: set[str] = set()
    while waiting:
        name = waiting.pop()
        closed.add(name)
        waiting |= set(_references(schemas[name])) - closed
        if "properties" in schemas[name]:
            schemas[name]["additionalProperties"] = False
    return document


def _references(node: Any) -> Iterator[str]:
    """Yield the names of the schemas that are referred to anywhere below."""
    if isinstance(node, dict):
        target = node.get("$ref")
        if isinstance(target, str) and target.startswith("#/components/schemas/"):
            yield target.rpartition("/")[2]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _references(child)
