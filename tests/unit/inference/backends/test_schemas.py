"""Which schemas an answer can be held to."""

from __future__ import annotations

from typing import Any

import pytest

from inference.backends.schemas import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_DEPTH,
    MAX_PATTERN_CHARS,
    check_enforceable,
    check_size,
)
from inference.errors import ErrorCode, TandemError

STRING = {"type": "string"}
OBJECT = {"type": "object"}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def refusal(schema: dict[str, Any]) -> str:
    with pytest.raises(TandemError) as caught:
        check_enforceable(schema, "tool 'x'")
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    return caught.value.message.removeprefix("tool 'x': ")


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {
            **OBJECT,
            "properties": {"city": {**STRING, "maxLength": 20}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
            "$schema": "https://json-schema.org/draft/2020-12/schema",
        },
        {"anyOf": [STRING, {"type": "null"}], "description": "not a keyword of mine"},
        # Properties may have the names of keywords.
        {**OBJECT, "properties": {"not": STRING, "contains": STRING, "multipleOf": STRING}},
        {**OBJECT, "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": STRING}},
        {**STRING, "format": "date-time"},
        {**STRING, "pattern": "^a{1,10}$"},
        {"type": "array", "items": STRING, "maxItems": 5, "uniqueItems": False},
        {**OBJECT, "propertyNames": {"pattern": "^x"}, "additionalProperties": STRING},
        {"allOf": [STRING]},
        {**OBJECT, "properties": {"next": {"$ref": "#"}}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}}},
        {"$ref": "#/nowhere/at/all"},
        {"enum": ["not", "if"], "default": {"not": 1}},
    ],
    ids=str,
)
def test_it_takes_what_can_be_enforced(schema: dict[str, Any]) -> None:
    check_enforceable(schema, "it")


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"not": STRING}, "not"),
        ({**OBJECT, "if": {}, "then": {}}, "if"),
        ({"type": "integer", "multipleOf": 3}, "multipleOf"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "contains": STRING}, "contains"),
        ({**OBJECT, "dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"$ref": "https://example.com/schema.json"}, "$ref"),
        ({"$ref": "#"}, "$ref"),
        ({"anyOf": [STRING, {"$ref": "#"}]}, "$ref"),
        (
            {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"oneOf": [{"$ref": "#/$defs/A"}]}}},
            "$ref",
        ),
        ({**STRING, "format": "color"}, "format"),
        ({"type": ["string", "null"], "format": "color"}, "format"),
        ({**STRING, "pattern": "a", "maxLength": 3}, "maxLength"),
        ({**STRING, "pattern": "^(?=a)b$"}, "pattern"),
        ({**STRING, "pattern": "a{1,999999}"}, "pattern"),
        ({**STRING, "pattern": "a{99999999999999999999}"}, "pattern"),
        ({**STRING, "pattern": "a" * (MAX_PATTERN_CHARS + 1)}, "pattern"),
        ({**STRING, "maxLength": MAX_COUNT + 1}, "maxLength"),
        ({**STRING, "minLength": -1}, "minLength"),
        ({**OBJECT, "patternProperties": {"a": {}, "b": {}}}, "patternProperties"),
        ({**OBJECT, "patternProperties": {"(?!a)": {}}}, "patternProperties"),
        ({**OBJECT, "properties": {}, "propertyNames": {}}, "propertyNames"),
        ({**OBJECT, "propertyNames": {"maxLength": 3}}, "propertyNames"),
        ({"allOf": [STRING, {"enum": ["a"]}]}, "allOf"),
    ],
    ids=str,
)
def test_it_names_the_keyword_that_cannot_be_enforced(schema: dict[str, Any], keyword: str) -> None:
    assert refusal(schema).startswith(f"the schema's '{keyword}' ")


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"n": {"multipleOf": 2}}}, "properties.n"),
        ({"items": {"anyOf": [{}, {"multipleOf": 2}]}}, "items.anyOf.1"),
        (
            {"$defs": {"N": {"additionalProperties": {"multipleOf": 2}}}},
            "$defs.N.additionalProperties",
        ),
        (
            {"prefixItems": [{"patternProperties": {"x": {"multipleOf": 2}}}]},
            "prefixItems.0.patternProperties.x",
        ),
    ],
)
def test_it_names_the_place(schema: dict[str, Any], path: str) -> None:
    assert refusal(schema) == f"the schema's 'multipleOf' at {path} cannot be enforced"


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": ["a"], "anyOf": {}, "items": 5, "allOf": None, "patternProperties": "x"},
        {"type": {"a": 1}, "format": 5, "pattern": 5, "$ref": 5, "maxLength": "9"},
        {"type": ["string", 5, {}], "propertyNames": True},
    ],
)
def test_it_leaves_what_is_no_schema_to_the_compiler(schema: dict[str, Any]) -> None:
    check_enforceable(schema, "it")


def test_it_bounds_depth() -> None:
    check_size(nested(MAX_DEPTH), "it")
    with pytest.raises(TandemError, match="it: the schema is nested too deeply, 48 levels"):
        check_size(nested(MAX_DEPTH + 1), "it")


def test_it_bounds_depth_without_recursion() -> None:
    with pytest.raises(TandemError, match="nested too deeply"):
        check_size(nested(100_000), "it")


def test_it_bounds_size() -> None:
    with pytest.raises(TandemError, match=f"the schema is too large: .* > {MAX_BYTES} maximum"):
        check_size({"description": "x" * MAX_BYTES}, "it")


def test_it_bounds_references() -> None:
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1000)}
    assert "references" in refusal({"$defs": chain | {"d1000": STRING}, "$ref": "#/$defs/d0"})


@pytest.mark.parametrize("reference", ["#/anyOf/0", "#/$defs/a~1b", "#/$defs/a%20b"])
def test_it_follows_plain_references_only(reference: str) -> None:
    assert "'$ref'" in refusal({"anyOf": [{"$ref": reference}]})
