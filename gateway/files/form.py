"""Reads the form that a file is uploaded with, in pieces."""

from __future__ import annotations

from typing import IO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from gateway.dialects.validation import invalid
from inference.errors import ErrorCode, TandemError
from jobs.files import Spool

MAX_FILE_BYTES = 512 * 1024 * 1024
_PIECE_BYTES = 256 * 1024
_MAX_FIELDS = 32
_MAX_FIELD_BYTES = 4096


def read_form(content_type: bytes | None, body: IO[bytes], spool: Spool) -> dict[str, str]:
    """Write the form's `file` to the spool and return its other fields; `filename` is the file's.

    Raises INVALID_REQUEST for what is no form with one file, TOO_LARGE for a file beyond
    `MAX_FILE_BYTES`.
    """
    boundary = _boundary(content_type)
    form = _Form(spool)
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": form.part_begin,
                "on_header_field": form.header_field,
                "on_header_value": form.header_value,
                "on_header_end": form.header_end,
                "on_headers_finished": form.headers_finished,
                "on_part_data": form.part_data,
                "on_part_end": form.part_end,
                "on_end": form.end,
            },
        )
        while piece := body.read(_PIECE_BYTES):
            parser.write(piece)
    except FormParserError as error:
        raise invalid(f"The request body is not a valid form: {error}") from None
    if not form.ended:
        raise invalid("The request body is not a valid form: it ends too early")
    if form.filename is None:
        raise invalid("file: Field required", param="file", reason="missing_required_parameter")
    return form.fields | {"filename": form.filename}


def _boundary(content_type: bytes | None) -> bytes:
    media_type, parameters = parse_options_header((content_type or b"").decode("latin-1"))
    boundary = parameters.get(b"boundary")
    if media_type != b"multipart/form-data" or not boundary:
        raise invalid("Content-Type must be multipart/form-data, with a boundary")
    return boundary


class _Form:
    """What the parser has found so far."""

    def __init__(self, spool: Spool) -> None:
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        self.ended = False
        self._spool = spool
        self._header = (bytearray(), bytearray())
        self._disposition = b""
        self._name = ""
        self._is_file = False
        self._value = bytearray()

    def part_begin(self) -> None:
        self._disposition = b""
        self._value.clear()
        if len(self.fields) >= _MAX_FIELDS:
            raise invalid(f"The form has more than {_MAX_FIELDS} fields")

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def header_end(self) -> None:
        name, value = map(bytes, self._header)
        if name.lower() == b"content-disposition":
            self._disposition = value
        self._header = (bytearray(), bytearray())

    def headers_finished(self) -> None:
        _, parameters = parse_options_header(self._disposition.decode("latin-1"))
        self._name = parameters.get(b"name", b"").decode("utf-8", "replace")
        self._is_file = self._name == "file"
        if self._is_file:
            if self.filename is not None:
                raise invalid("file: there is more than one", param="file")
            # A path that a browser sends along is nobody's business.
            name = parameters.get(b"filename", b"").decode("utf-8", "replace")
            self.filename = name.replace("\0", "").rpartition("/")[2] or "upload"

    def part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._spool.write(memoryview(data)[start:end])
            if self._spool.size_bytes > MAX_FILE_BYTES:
                raise TandemError(
                    ErrorCode.TOO_LARGE,
                    f"the file has more than the maximum of {MAX_FILE_BYTES} bytes",
                    param="file",
                )
            return
        self._value.extend(data[start:end])
        if len(self._value) > _MAX_FIELD_BYTES:
            raise invalid(f"{self._name[:100]}: longer than {_MAX_FIELD_BYTES} bytes")

    def part_end(self) -> None:
        if not self._is_file:
            self.fields[self._name] = self._value.decode("utf-8", "replace")

    def end(self) -> None:
        self.ended = True
