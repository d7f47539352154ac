"""What a request body must be."""

from __future__ import annotations

import json
import re

import pytest

from gateway.http.body import (
    MAX_BRACKETS,
    MAX_DEPTH,
    check_content_encoding,
    check_content_type,
    decode_object,
)
from inference.errors import ErrorCode, TandemError


def nested(depth: int) -> bytes:
    """Return an object that is `depth` levels deep, itself included."""
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_it_decodes_an_object() -> None:
    assert decode_object(b' {"a": [1, 2.5, null, true, "\\ud83d\\ude00"]} ') == {
        "a": [1, 2.5, None, True, "\U0001f600"]
    }


def test_it_skips_a_byte_order_mark() -> None:
    assert decode_object(b"\xef\xbb\xbf{}") == {}


def test_it_takes_the_last_of_repeated_keys() -> None:
    assert decode_object(b'{"a": 1, "a": 2}') == {"a": 2}


def test_it_keeps_large_integers_exact() -> None:
    assert decode_object(b'{"a": 123456789012345678901}') == {"a": 123456789012345678901}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "The request body is empty"),
        (b" \n ", "The request body is empty"),
        (b"\xef\xbb\xbf", "not valid JSON: unexpected end of input (byte 0)"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"a": }', "not valid JSON: invalid character (byte 6)"),
        (b'{"a": 1', "not valid JSON: unexpected end of input (byte 7)"),
        (b"{} x", "not valid JSON: trailing characters"),
        (b'{"a": NaN}', "not valid JSON: invalid character (byte 6)"),
        (b'{"a": Infinity}', "not valid JSON: invalid character (byte 6)"),
        (b'{"a": 1e999}', "number that is out of range"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "number that is out of range"),
        (b'{"a": "\xff"}', "not valid UTF-8 (byte 7)"),
        (b'{"a": "\xed\xa0\x80"}', "not valid UTF-8 (byte 7)"),
        ('{"a": 1}'.encode("utf-16"), "not valid UTF-8 (byte 0)"),
        (b'{"a": "\\ud800"}', "surrogate pair (byte 13)"),
        (b'{"a": "\\udc00 and more"}', "surrogate pair (byte 13)"),
        (b'{"\\ud800\\u0041": 1}', "surrogate pair (byte 14)"),
    ],
)
def test_it_refuses_what_is_not_strict_json(raw: bytes, reason: str) -> None:
    with pytest.raises(TandemError, match=re.escape(reason)) as caught:
        decode_object(raw)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_it_accepts_the_deepest_legal_nesting() -> None:
    raw = nested(MAX_DEPTH)
    assert decode_object(raw) == json.loads(raw)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 500_000])
def test_it_refuses_deeper_nesting(depth: int) -> None:
    with pytest.raises(TandemError, match="nested deeper than 64 levels"):
        decode_object(nested(depth))


def test_it_refuses_more_brackets_than_any_prompt_needs() -> None:
    with pytest.raises(TandemError, match="more than 1,000,000 opening brackets"):
        decode_object(b'{"a":[' + b",".join([b"[]"] * MAX_BRACKETS) + b"]}")


@pytest.mark.parametrize(
    "value",
    [
        b"application/json",
        b"Application/JSON; charset=UTF-8",
        b"application/json;charset=utf-8;x=y",
        b"application/vnd.api+json",
    ],
)
def test_it_accepts_json_content_types(value: bytes) -> None:
    check_content_type(value)


@pytest.mark.parametrize("value", [b"text/plain", b"text/x+json", b"", b"application/jsonx"])
def test_it_refuses_other_content_types_by_name(value: bytes) -> None:
    reason = f"Content-Type must be application/json, not {value.decode()}"
    with pytest.raises(TandemError, match=f"^{re.escape(reason)}$"):
        check_content_type(value)


def test_it_refuses_a_missing_content_type() -> None:
    with pytest.raises(TandemError, match="the request has none"):
        check_content_type(None)


@pytest.mark.parametrize("value", [None, b"", b"identity", b"Identity "])
def test_it_accepts_bodies_that_are_not_encoded(value: bytes | None) -> None:
    check_content_encoding(value)


@pytest.mark.parametrize("value", [b"gzip", b"br", b"identity, gzip"])
def test_it_refuses_encoded_bodies(value: bytes) -> None:
    with pytest.raises(TandemError, match=f"must be identity, not {value.decode()}: send"):
        check_content_encoding(value)
