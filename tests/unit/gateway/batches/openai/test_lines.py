"""A batch's input, line by line: what is wrong with it, and where."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.batches.openai import lines
from gateway.batches.openai.lines import MAX_LINES, Findings, check, count_requests, rows
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from jobs import files

URL = "/v1/chat/completions"


def line(custom_id: Any = "a", **changes: Any) -> bytes:
    """Return one line; a field that is None is left out."""
    body = {"model": "one", "messages": [{"role": "user", "content": "ü"}]}
    fields = {"custom_id": custom_id, "method": "POST", "url": URL, "body": body} | changes
    kept = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False).encode() + b"\n"


def find_model(name: str) -> ModelEntry:
    known = {"one": "one", "ONE": "one", "alias": "one", "two": "two"}
    if name not in known:
        raise TandemError(ErrorCode.MODEL_NOT_FOUND, f"model '{name}' not found")
    return cast("ModelEntry", SimpleNamespace(id=known[name]))


def checked(*content: bytes) -> Findings:
    return check(io.BytesIO(b"".join(content)), URL, find_model)


def errors(*content: bytes) -> list[tuple[int | None, str, str | None]]:
    return [(error.line, error.code, error.param) for error in checked(*content).errors]


def test_a_good_file_has_its_requests_and_their_model() -> None:
    assert checked(line("a"), line("b")) == Findings(2, "one", [])


def test_a_mark_line_breaks_and_blank_lines_change_nothing() -> None:
    content = b"\xef\xbb\xbf" + line("a").replace(b"\n", b"\r\n") + b"\r\n  \n" + line("b")
    assert checked(content) == Findings(2, "one", [])
    assert [(row.line, row.custom_id) for row in rows(io.BytesIO(content))] == [(1, "a"), (4, "b")]


def test_a_row_has_the_bytes_of_its_body() -> None:
    (row,) = rows(io.BytesIO(b'{"body": {"b" :1.0,"a":"\\u00fc"} , "custom_id": "x"}\n'))
    assert row.body == b'{"b" :1.0,"a":"\\u00fc"}'


def test_names_of_one_model_are_no_mismatch() -> None:
    others = (line(n, body={"model": n}) for n in ("ONE", "alias"))
    assert checked(line(), *others).errors == []


@pytest.mark.parametrize("content", [b"", b"\n\r\n", b"\xef\xbb\xbf", b"  "])
def test_an_empty_file_is_empty(content: bytes) -> None:
    assert errors(content) == [(None, "empty_file", None)]


@pytest.mark.parametrize(
    "bad",
    [
        *(b"[1]", b"null", b"1", b'"x"', b"{", b"{'a': 1}", b"{} {}", b"nonsense"),
        *(b'{"a": "\xff"}', b'{"custom_id": "\xc3"}', b"\x00", b'{"a": NaN}'),
        b'{"a":' * 100_000,
    ],
    ids=lambda bad: repr(bad[:20]),
)
def test_bug_39_a_line_that_is_no_object_is_an_error_of_that_line(bad: bytes) -> None:
    assert errors(line("a"), line("b"), bad + b"\n", line("c")) == [(3, "invalid_json_line", None)]
    with pytest.raises(TandemError) as caught:
        count_requests(io.BytesIO(line() + line() + bad))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.message.startswith("line 3: ")


def test_a_line_that_is_too_long_is_an_error_of_that_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (files, lines):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 200)
    content = line("a") + line("b", body={"model": "x" * 300}) + line("c")
    assert errors(content) == [(2, "invalid_json_line", None)]
    with pytest.raises(TandemError, match="line 2: longer than the maximum of 200 bytes"):
        count_requests(io.BytesIO(content))


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"custom_id": None}, "missing_required_parameter", "custom_id"),
        ({"custom_id": 5}, "invalid_custom_id", "custom_id"),
        ({"custom_id": ""}, "invalid_custom_id", "custom_id"),
        ({"custom_id": "x" * 513}, "invalid_custom_id", "custom_id"),
        ({"custom_id": "a\0b"}, "invalid_custom_id", "custom_id"),
        ({"method": "GET"}, "invalid_method", "method"),
        ({"method": 1}, "invalid_method", "method"),
        ({"url": None}, "url_mismatch", "url"),
        ({"url": "/v1/responses"}, "url_mismatch", "url"),
        ({"body": None}, "missing_required_parameter", "body"),
        ({"body": [1]}, "invalid_body", "body"),
        ({"body": "x"}, "invalid_body", "body"),
        ({"body": {}}, "missing_required_parameter", "body.model"),
        ({"body": {"model": 1}}, "invalid_body", "body.model"),
        ({"body": {"model": "three"}}, "model_not_found", "body.model"),
        ({"body": {"model": "a\0b"}}, "model_not_found", "body.model"),
        ({"body": {"model": "two"}}, "model_mismatch", "body.model"),
        ({"body": {"model": "one", "stream": True}}, "unsupported_parameter", "body.stream"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_line_is_told_by_its_code(
    changes: dict[str, Any], code: str, param: str
) -> None:
    found = checked(line("first"), line(**changes), line("last"))
    ((number, *rest),) = [(e.line, e.code, e.param) for e in found.errors]
    assert (number, *rest) == (2, code, param)
    assert "\0" not in found.errors[0].message


def test_a_stream_that_is_not_asked_for_is_no_error() -> None:
    assert errors(line(body={"model": "one", "stream": False})) == []


def test_a_repeated_custom_id_names_both_lines() -> None:
    found = checked(line("x"), line("y"), b"\n", line("x"))
    (error,) = found.errors
    assert (error.line, error.code) == (4, "duplicate_custom_id")
    assert error.message == "custom_id 'x' is that of line 1 too"


def test_all_errors_are_told_at_once_up_to_a_hundred() -> None:
    assert errors(line("a", url="/x"), b"[]\n", line("a")) == [
        (1, "url_mismatch", "url"),
        (2, "invalid_json_line", None),
        (3, "duplicate_custom_id", "custom_id"),
    ]
    assert len(errors(*[b"[]\n"] * 200)) == 100


def test_50_000_requests_are_taken_and_one_more_is_not() -> None:
    content = b"".join(line(str(number)) for number in range(MAX_LINES))
    assert checked(content).errors == []
    assert count_requests(io.BytesIO(content)) == MAX_LINES
    more = content + b"\n" + line("more")
    assert errors(more) == [(50_002, "too_many_tasks", None)]
    with pytest.raises(TandemError, match="line 50002: there are more than 50,000 requests"):
        count_requests(io.BytesIO(more))


def test_an_upload_is_not_asked_what_it_means() -> None:
    assert count_requests(io.BytesIO(b"\xef\xbb\xbf{}\r\n\n{}")) == 2
    assert count_requests(io.BytesIO(b"")) == 0


@given(st.lists(st.binary(max_size=60) | st.just(line()), max_size=8))
def test_whatever_a_file_is_it_is_told(content: list[bytes]) -> None:
    found = check(io.BytesIO(b"\n".join(content)), URL, find_model)
    assert found.errors or found.requests == len(list(rows(io.BytesIO(b"\n".join(content)))))
