"""Bodies that hold a whole batch: mapped, decoded, and refused in the words of the API."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from io import BytesIO

import pytest

from gateway.batches.anthropic import wire as anthropic
from gateway.batches.bodies import Buffer, mapped
from gateway.batches.rows import Row
from gateway.batches.sference import wire as sference
from inference.errors import ErrorCode, TandemError

Decode = Callable[[Buffer], Iterator[Row]]
ROW = b'{"requests":[{"custom_id":"a","params":{"x": "\xc3\xa9"}}]}'


def refusal(decode: Decode, body: bytes) -> str:
    with pytest.raises(TandemError) as refused:
        decode(memoryview(body))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    return refused.value.message


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_body_is_mapped_from_memory_and_from_a_file(mark: bytes) -> None:
    assert bytes(mapped(BytesIO(mark + ROW))) == ROW
    with tempfile.TemporaryFile() as file:
        file.write(mark + ROW)
        file.flush()
        body = mapped(file)
        assert bytes(body) == ROW
        rows = anthropic.decode_rows(body)
    # What was mapped outlives the file.
    assert list(rows) == [Row(1, "a", b'{"x": "\xc3\xa9"}')]


def test_an_empty_body_is_mapped_too() -> None:
    with tempfile.TemporaryFile() as file:
        assert bytes(mapped(file)) == b""
    assert bytes(mapped(BytesIO())) == b""


def test_rows_keep_their_bytes_and_their_order() -> None:
    body = b'{"requests": [{"params":  {"b": 1, "a":2} , "custom_id": "x"}, ' + (
        b'{"custom_id": "Y-_9", "params": null, "more": 1}], "other": 1}'
    )
    rows = list(anthropic.decode_rows(memoryview(body)))
    assert rows == [Row(1, "x", b'{"b": 1, "a":2}'), Row(2, "Y-_9", b"null")]
    body = b'{"window": "24h", "requests": [{"body": {"a": 1}}, {"custom_id": null, "body": []}]}'
    rows = list(sference.decode_rows(memoryview(body)))
    assert rows == [Row(1, "", b'{"a": 1}'), Row(2, "", b"[]")]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The request body is not valid JSON: Input data was truncated"),
        (b"null", "body: Expected `object`, got `null`"),
        (b"{", "The request body is not valid JSON: Input data was truncated"),
        (
            b'{"requests":[{"custom_id":"\xff","params":{}}]}',
            "The request body is not valid JSON: Invalid UTF-8 encoded string",
        ),
        (
            b'{"requests":[{"custom_id":"a","params":' + b"[" * 100_000,
            "The request body is nested too deep",
        ),
        (b"{}", "requests: Field required"),
        (b'{"requests":{}}', "requests: Expected `array`, got `object`"),
        (b'{"requests":[]}', "requests: Expected a list with at least 1 item"),
        (b'{"requests":[1]}', "requests.0: Expected `object`, got `int`"),
        (b'{"requests":[{"params":{}}]}', "requests.0.custom_id: Field required"),
        (
            b'{"requests":[{"custom_id":"","params":{}}]}',
            "requests.0.custom_id: Expected a string of 1 to 64 letters, digits, `_` and `-`",
        ),
        (
            b'{"requests":[{"custom_id":"a\\n","params":{}}]}',
            "requests.0.custom_id: Expected a string of 1 to 64 letters, digits, `_` and `-`",
        ),
        (
            b'{"requests":[{"custom_id":"a","params":{}},{"custom_id":"a","params":{}}]}',
            "requests: the custom_id 'a' is used more than once",
        ),
    ],
)
def test_a_message_batch_that_is_none_is_refused(body: bytes, message: str) -> None:
    assert refusal(anthropic.decode_rows, body) == message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"requests":[]}', "requests: Expected a list with at least 1 item"),
        (b'{"requests":[{}]}', "requests.0.body: Field required"),
        (b'{"requests":[{"body":{}}],"x":1}', "x: Extra inputs are not permitted"),
        (b'{"requests":[{"body":{},"x":1}]}', "requests.0.x: Extra inputs are not permitted"),
        (b'{"requests":[{"body":{}}],"window":"1h"}', "window: Invalid enum value '1h'"),
        (
            b'{"requests":[{"custom_id":"a","body":{}},{"custom_id":"a","body":{}}]}',
            "requests: the custom_id 'a' is used more than once",
        ),
    ],
)
def test_an_inline_batch_that_is_none_is_refused(body: bytes, message: str) -> None:
    assert refusal(sference.decode_rows, body) == message


@pytest.mark.parametrize("custom_id", [b"", b"\\u0000", b"x" * 513])
def test_a_name_that_cannot_be_kept_is_refused(custom_id: bytes) -> None:
    body = b'{"requests":[{"custom_id":"%b","body":{}}]}' % custom_id
    assert refusal(sference.decode_rows, body).startswith("requests.0.custom_id: ")


@pytest.mark.parametrize(
    ("decode", "most", "row"),
    [
        (anthropic.decode_rows, anthropic.MAX_ROWS, b'{"custom_id":"%d","params":1}'),
        (sference.decode_rows, sference.MAX_ROWS, b'{"custom_id":"%d","body":1}'),
    ],
)
def test_so_many_rows_are_taken_and_no_more(decode: Decode, most: int, row: bytes) -> None:
    def body(count: int) -> bytes:
        return b'{"requests":[%b]}' % b",".join(row % number for number in range(count))

    assert sum(1 for _ in decode(memoryview(body(most)))) == most
    message = refusal(decode, body(most + 1))
    assert message == f"requests: Expected a list with at most {most:,} items"
