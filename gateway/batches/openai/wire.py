"""What `POST /v1/batches` takes in OpenAI's form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from gateway.dialects.validation import WholeNumber, Wire, first_error

# PostgreSQL's JSON has no NUL.
_TEXT = r"^[^\x00]*$"
_Key = Annotated[str, StringConstraints(max_length=64, pattern=_TEXT)]
_Value = Annotated[str, StringConstraints(max_length=512, pattern=_TEXT)]


class OutputExpiry(Wire):
    """When the output and error files are deleted."""

    anchor: Literal["created_at"]
    """What `seconds` count from: when the file was made."""
    seconds: Annotated[int, Field(ge=3600, le=2_592_000), WholeNumber]


class BatchBody(Wire):
    """A new batch."""

    input_file_id: str
    """An uploaded file with the purpose `batch`."""
    endpoint: str
    """The path that every line of the file is for."""
    completion_window: Literal["24h"]
    metadata: Annotated[dict[_Key, _Value], Field(max_length=16)] | None = None
    output_expires_after: OutputExpiry | None = None


def decode_batch(obj: dict[str, Any]) -> BatchBody:
    """Read the body. Raises INVALID_REQUEST naming the field that is wrong."""
    try:
        return BatchBody.model_validate(obj)
    except ValidationError as error:
        raise first_error(error) from None
