"""Forms that files are uploaded with."""

from __future__ import annotations

import io

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.files import form
from gateway.files.form import read_form
from inference.errors import ErrorCode, TandemError
from jobs.files import Spool


def encoded(files: object, data: dict[str, str] | None = None) -> tuple[bytes, bytes]:
    """Return a form as httpx encodes it: its content type and its body."""
    request = httpx.Request("POST", "http://x", files=files, data=data)  # type: ignore[arg-type]
    return request.headers["content-type"].encode(), request.read()


def read(content_type: bytes | None, body: bytes) -> tuple[dict[str, str], bytes]:
    """Return the fields and the file's bytes."""
    with Spool() as spool:
        fields = read_form(content_type, io.BytesIO(body), spool)
        return fields, spool.read_back().read()


def refusal(content_type: bytes | None, body: bytes) -> TandemError:
    with pytest.raises(TandemError) as caught:
        read(content_type, body)
    return caught.value


def test_it_finds_the_file_and_the_fields() -> None:
    form = encoded({"file": ("a.jsonl", b"12\r\n3")}, {"purpose": "batch", "x[y]": "ä"})
    fields, content = read(*form)
    assert fields == {"filename": "a.jsonl", "purpose": "batch", "x[y]": "ä"}
    assert content == b"12\r\n3"


@given(st.binary(max_size=2000), st.integers(1, 50))
def test_the_file_is_the_same_bytes_however_it_is_cut(content: bytes, piece_bytes: int) -> None:
    content = content + b"\r\n--" + content
    content_type, body = encoded({"file": ("a", content)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(form, "_PIECE_BYTES", piece_bytes)
        assert read(content_type, body)[1] == content


@pytest.mark.parametrize(
    ("name", "expected"),
    [("../../etc/passwd", "passwd"), ("C:\\docs\\a.txt", "a.txt"), ("ü\u2713.txt", "ü\u2713.txt")],
)
def test_of_a_path_only_the_name_is_kept(name: str, expected: str) -> None:
    body = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="%b"\r\n\r\nx\r\n--b--\r\n'
    )
    fields, _ = read(b"multipart/form-data; boundary=b", body % name.encode())
    assert fields["filename"] == expected


def test_a_file_without_a_name_has_one() -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\n'
    assert read(b"multipart/form-data; boundary=b", body)[0] == {"filename": "upload"}


@pytest.mark.parametrize(
    "content_type",
    [None, b"application/json", b"multipart/form-data", b"multipart/form-data; boundary="],
)
def test_it_refuses_other_types(content_type: bytes | None) -> None:
    error = refusal(content_type, b"{}")
    assert error.code is ErrorCode.INVALID_REQUEST
    assert "multipart/form-data, with a boundary" in error.message


@pytest.mark.parametrize("cut", [3, 10, 60, 100])
def test_a_form_that_is_cut_is_refused(cut: int) -> None:
    content_type, body = encoded({"file": ("a.jsonl", b"123" * 50)})
    error = refusal(content_type, body[:-cut])
    assert error.message == "The request body is not a valid form: it ends too early"


def test_a_form_without_a_file_is_refused() -> None:
    error = refusal(*encoded({"purpose": (None, "batch")}))
    assert (error.message, error.param) == ("file: Field required", "file")


def test_a_form_with_two_files_is_refused() -> None:
    error = refusal(*encoded([("file", ("a", b"1")), ("file", ("b", b"2"))]))
    assert error.message == "file: there is more than one"


def test_a_form_with_long_or_many_fields_is_refused() -> None:
    long = refusal(*encoded({"file": ("a", b"1")}, {"purpose": "x" * 5000}))
    assert long.message == "purpose: longer than 4096 bytes"
    many = refusal(*encoded({"file": ("a", b"1")}, {f"f{n}": "" for n in range(40)}))
    assert many.message == "The form has more than 32 fields"


def test_a_form_of_endless_headers_is_refused() -> None:
    body = b"--b\r\n" + b"a: b\r\n" * 100
    assert "header count" in refusal(b"multipart/form-data; boundary=b", body).message


def test_a_file_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "MAX_FILE_BYTES", 10)
    assert read(*encoded({"file": ("a", b"x" * 10)}))[1] == b"x" * 10
    error = refusal(*encoded({"file": ("a", b"x" * 11)}))
    assert (error.code, error.param) == (ErrorCode.TOO_LARGE, "file")


@given(st.binary(max_size=300))
def test_nothing_that_is_sent_breaks_it(body: bytes) -> None:
    for start in (b"", b"--b\r\n", b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n'):
        code = ErrorCode.INVALID_REQUEST
        try:
            read(b"multipart/form-data; boundary=b", start + body)
        except TandemError as error:
            code = error.code
        assert code is ErrorCode.INVALID_REQUEST
