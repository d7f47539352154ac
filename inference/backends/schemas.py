"""Which JSON schemas an answer can be held to.

The compiler of grammars ignores much of what it does not know. An answer would then match a
schema that nobody asked for, so what it ignores is refused here, by name. What it reports itself
is up to its caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec

from inference.errors import ErrorCode, TandemError

MAX_BYTES = 128 * 1024
"""A schema's size as JSON: its grammar grows with it, and so does the time to compile it."""

MAX_DEPTH = 48
"""Objects and arrays inside one another. vLLM takes 64, some of which it puts around a schema."""

MAX_COUNT = 100_000
"""The largest length or number of repetitions: more takes seconds to compile."""

MAX_PATTERN_CHARS = 2_000

MAX_REFERENCES = 200
"""Each is followed to find circles."""

_COUNTS = (
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("minContains", "maxContains"),
)
_IGNORED = (
    *("not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"),
    *("multipleOf", "uniqueItems", "contains", "minContains", "maxContains"),
    *("unevaluatedItems", "$dynamicRef", "$recursiveRef"),
)
_FORMATS = {
    *("email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid"),
    *("uri", "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"),
}
_LENGTHS = ("minLength", "maxLength")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_IN_LIST = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("additionalProperties", "propertyNames", "items", "additionalItems")
_QUANTIFIER = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_LOOKAROUND = re.compile(r"\(\?<?[=!]")

# The whole schema, or something named inside; nothing escaped, nothing counted.
_PLAIN_REF = re.compile(r"#(?:/[^/~%]*[^/~%0-9][^/~%]*)*")

Schema = dict[str, Any]


def check_size(schema: Schema, subject: str) -> None:
    """Raise `TandemError` unless the schema can be handled at all; `subject` is what has it."""
    if _is_deeper(schema, MAX_DEPTH):
        raise _refusal(subject, f"the schema is nested too deeply, {MAX_DEPTH} levels are the most")
    size = len(msgspec.json.encode(schema))
    if size > MAX_BYTES:
        raise _refusal(subject, f"the schema is too large: {size} bytes > {MAX_BYTES} maximum")


def check_enforceable(schema: Schema, subject: str) -> None:
    """Raise `TandemError` (INVALID_REQUEST) naming the keyword that cannot be enforced, if any."""
    check_size(schema, subject)
    inside = list(_subschemas(schema, ""))
    if sum("$ref" in inner for _, inner in inside) > MAX_REFERENCES:
        raise _refusal(subject, f"the schema has more than {MAX_REFERENCES} references")
    for path, inner in inside:
        for keyword, why in chain(_faults(inner), _circle_faults(inner, schema)):
            place = f" at {path}" if path else ""
            raise _refusal(subject, f"the schema's '{keyword}'{place} {why}")


def _refusal(subject: str, what: str) -> TandemError:
    return TandemError(ErrorCode.INVALID_REQUEST, f"{subject}: {what}")


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _subschemas(schema: Any, path: str) -> Iterator[tuple[str, Schema]]:
    """Yield every schema inside, with its place; `check_size` has made sure that they are few."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    dot = f"{path}." if path else ""
    for keyword in _SINGLE:
        yield from _subschemas(schema.get(keyword), f"{dot}{keyword}")
    for keyword in _BY_NAME:
        named = schema.get(keyword)
        for name, inner in named.items() if isinstance(named, dict) else ():
            yield from _subschemas(inner, f"{dot}{keyword}.{name}")
    for keyword in _IN_LIST:
        listed = schema.get(keyword)
        for index, inner in enumerate(listed) if isinstance(listed, list) else ():
            yield from _subschemas(inner, f"{dot}{keyword}.{index}")


def _faults(schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield the keywords of one schema that are not to be had, and why."""
    for keyword in _IGNORED:
        if schema.get(keyword, False) is not False:
            yield keyword, "cannot be enforced"
    for keyword in _COUNTS:
        if isinstance(count := schema.get(keyword), int | float) and not 0 <= count <= MAX_COUNT:
            yield keyword, f"must be from 0 to {MAX_COUNT}, not {count}"
    if isinstance(ref := schema.get("$ref"), str) and not _PLAIN_REF.fullmatch(ref):
        yield "$ref", "must name a definition of the schema itself, as in '#/$defs/name'"
    yield from _string_faults(schema)
    yield from _object_faults(schema)


def _circle_faults(schema: Schema, root: Schema) -> Iterator[tuple[str, str]]:
    """Yield the reference that leads back to where it stands, with nothing of a value between.

    No value matches that, and the engine would find out only while it generates one.
    """
    if "$ref" not in schema:
        return
    seen: set[int] = set()
    waiting = [_referred(schema, root)]
    while waiting:
        inner = waiting.pop()
        if inner is schema:
            yield "$ref", "leads back to itself"
            return
        if isinstance(inner, dict) and id(inner) not in seen:
            seen.add(id(inner))
            waiting.append(_referred(inner, root))
            for keyword in ("anyOf", "oneOf", "allOf"):
                waiting += branches if isinstance(branches := inner.get(keyword), list) else []


def _referred(schema: Schema, root: Schema) -> Any:
    """Return what the schema's reference points at, or None."""
    ref = schema.get("$ref")
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    place: Any = root
    for step in ref.removeprefix("#").split("/")[1:]:
        place = place.get(step) if isinstance(place, dict) else None
    return place


def _string_faults(schema: Schema) -> Iterator[tuple[str, str]]:
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and (why := _pattern_fault(pattern)):
        yield "pattern", why
    kinds = schema.get("type")
    if kinds != "string" and not (isinstance(kinds, list) and "string" in kinds):
        return
    if isinstance(name := schema.get("format"), str) and name not in _FORMATS:
        yield "format", f"'{name}' cannot be enforced"
    for keyword in _LENGTHS:
        if keyword in schema and ("pattern" in schema or "format" in schema):
            yield keyword, "cannot be enforced beside 'pattern' or 'format'"


def _object_faults(schema: Schema) -> Iterator[tuple[str, str]]:
    named = schema.get("propertyNames")
    patterns = schema.get("patternProperties")
    if isinstance(patterns, dict):
        if len(patterns) > 1 or "properties" in schema:
            yield "patternProperties", "cannot be enforced beside other properties"
        for pattern in patterns:
            if why := _pattern_fault(pattern):
                yield "patternProperties", why
    if "propertyNames" in schema:
        if "properties" in schema or "patternProperties" in schema:
            yield "propertyNames", "cannot be enforced beside other properties"
        if isinstance(named, dict) and any(keyword in named for keyword in _LENGTHS):
            yield "propertyNames", "cannot be enforced with a length"
    if isinstance(branches := schema.get("allOf"), list) and len(branches) > 1:
        yield "allOf", "of more than one schema cannot be enforced"


def _pattern_fault(pattern: str) -> str | None:
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"is too long: {len(pattern)} characters > {MAX_PATTERN_CHARS} maximum"
    if _LOOKAROUND.search(pattern):
        return "cannot be enforced: it looks ahead or behind"
    counts = [count for pair in _QUANTIFIER.findall(pattern) for count in pair if count]
    if any(len(count) > 6 or int(count) > MAX_COUNT for count in counts):
        return f"repeats too often: {MAX_COUNT} times are the most"
    return None
