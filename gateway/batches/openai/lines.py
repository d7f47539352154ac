"""The lines of a batch's input file: what each must be, whatever its request says.

Pure but for the file that it reads. A line is
`{"custom_id": ..., "method": "POST", "url": <the batch's endpoint>, "body": {...}}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from gateway.batches.rows import Row
from gateway.errors import shown
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from jobs.batches import BatchError
from jobs.files import MAX_LINE_BYTES, numbered_lines

MAX_LINES = 50_000
"""Requests in one batch."""

MAX_ERRORS = 100
"""Told of at once; a file that is wrong throughout would have one for each line."""

TOO_MANY = "too_many_tasks"
_NOT_JSON = "invalid_json_line"
_MISSING = "missing_required_parameter"
_MAX_ID_CHARS = 512
_SHOWN_CHARS = 100


class BadLineError(Exception):
    """One line is wrong; `code` and `param` are those of a `BatchError`."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param


class Findings(NamedTuple):
    """What a file was found to be: requests, all for one model, unless there are errors."""

    requests: int
    model: str
    errors: list[BatchError]


FindModel = Callable[[str], ModelEntry]
"""Returns the catalogue's entry. Raises MODEL_NOT_FOUND or PERMISSION."""


class _Object(msgspec.Struct):
    """Any JSON object."""


class _Line(msgspec.Struct):
    custom_id: Any = None
    method: Any = "POST"
    url: Any = None
    body: msgspec.Raw = msgspec.Raw(b"")


class _Body(msgspec.Struct):
    model: Any = None
    stream: Any = None


_decode_object = msgspec.json.Decoder(_Object).decode
_decode_line = msgspec.json.Decoder(_Line).decode
_decode_body = msgspec.json.Decoder(_Body).decode
T = TypeVar("T")


def count_requests(file: IO[bytes]) -> int:
    """Return how many requests a file has whose lines are all JSON objects.

    Raises INVALID_REQUEST naming the first line that is not, or that is one too many. What the
    objects say is not looked at: a batch tells of that.
    """
    count = 0
    for number, line in numbered_lines(file):
        count += 1
        try:
            if count > MAX_LINES:
                raise BadLineError(TOO_MANY, f"there are more than {MAX_LINES:,} requests")
            _decode(_decode_object, line)
        except BadLineError as error:
            raise TandemError(
                ErrorCode.INVALID_REQUEST,
                f"line {number}: {error.message}",
                param="file",
                reason=error.code,
            ) from None
    return count


def check(file: IO[bytes], endpoint: str, find_model: FindModel) -> Findings:
    """Read all of a batch's input, and tell what is wrong with it: the first `MAX_ERRORS`."""
    checker = _Checker(endpoint, find_model)
    count = 0
    errors = []
    for number, line in numbered_lines(file):
        count += 1
        if count > MAX_LINES:
            message = f"The file has more than {MAX_LINES:,} requests."
            errors.append(BatchError(code=TOO_MANY, message=message, line=number))
            break
        try:
            checker.check(number, line)
        except BadLineError as error:
            # A database's text has no NUL.
            message = error.message.replace("\0", "\N{REPLACEMENT CHARACTER}")
            errors.append(
                BatchError(code=error.code, message=message, line=number, param=error.param)
            )
            if len(errors) >= MAX_ERRORS:
                break
    if count == 0:
        errors.append(BatchError(code="empty_file", message="The file has no requests."))
    return Findings(count, checker.model, errors)


def rows(file: IO[bytes]) -> Iterator[Row]:
    """Yield the rows of a file that was found to be right."""
    for number, line in numbered_lines(file):
        row = _decode_line(line)
        yield Row(number, row.custom_id, bytes(row.body))


class _Checker:
    """Checks one line after another. `model` is the catalogue's id of the first one's."""

    def __init__(self, endpoint: str, find_model: FindModel) -> None:
        self._endpoint = endpoint
        self._find_model = find_model
        self._lines_by_id: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self.model = ""

    def check(self, number: int, line: bytes) -> None:
        """Raises `BadLineError` for the first thing that is wrong with a line."""
        request = _decode(_decode_line, line)
        self._check_id(number, request.custom_id)
        if request.method != "POST":
            raise BadLineError("invalid_method", "method must be POST", "method")
        if request.url != self._endpoint:
            raise BadLineError(
                "url_mismatch",
                f"url must be the batch's endpoint, {self._endpoint}, not {_shown(request.url)}",
                "url",
            )
        if not bytes(request.body):
            raise BadLineError(_MISSING, "body is missing", "body")
        try:
            body = _decode_body(request.body)
        except msgspec.ValidationError:
            raise BadLineError("invalid_body", "body must be an object", "body") from None
        self._check_model(body.model)
        if body.stream:
            raise BadLineError(
                "unsupported_parameter",
                "a request of a batch cannot be streamed: leave stream out",
                "body.stream",
            )

    def _check_id(self, number: int, custom_id: Any) -> None:
        if custom_id is None:
            raise BadLineError(_MISSING, "custom_id is missing", "custom_id")
        if (
            not isinstance(custom_id, str)
            or not 1 <= len(custom_id) <= _MAX_ID_CHARS
            or "\0" in custom_id
        ):
            raise BadLineError(
                "invalid_custom_id",
                f"custom_id must be a text of 1 to {_MAX_ID_CHARS} characters",
                "custom_id",
            )
        first = self._lines_by_id.setdefault(custom_id, number)
        if first != number:
            raise BadLineError(
                "duplicate_custom_id",
                f"custom_id {_shown(custom_id)} is that of line {first} too",
                "custom_id",
            )

    def _check_model(self, name: Any) -> None:
        if name is None:
            raise BadLineError(_MISSING, "body.model is missing", "body.model")
        if not isinstance(name, str):
            raise BadLineError("invalid_body", "body.model must be a text", "body.model")
        if name not in self._names:
            try:
                self._names[name] = self._find_model(name).id
            except TandemError as error:
                code = "model_not_found"
                raise BadLineError(code, shown(error), "body.model") from None
        found = self._names[name]
        self.model = self.model or found
        if found != self.model:
            raise BadLineError(
                "model_mismatch",
                f"the file's first request is for '{self.model}', this one for '{found}': "
                "all must be for one model",
                "body.model",
            )


def _decode(decode: Callable[[bytes], T], line: bytes) -> T:
    if len(line) > MAX_LINE_BYTES:
        raise BadLineError(_NOT_JSON, f"longer than the maximum of {MAX_LINE_BYTES:,} bytes")
    try:
        line.decode()
        return decode(line)
    except UnicodeDecodeError as error:
        message = f"not valid UTF-8 (byte {error.start + 1} of the line)"
    except msgspec.ValidationError:
        message = "not a JSON object"
    except msgspec.DecodeError as error:
        message = f"not valid JSON: {str(error).removeprefix('JSON is malformed: ')}"
    except RecursionError:
        message = "nested too deeply"
    raise BadLineError(_NOT_JSON, message)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
