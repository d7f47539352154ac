"""What the wire types share: strictness, unions told apart by `type`, and the words of errors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, ValidationError
from pydantic_core import ErrorDetails

from inference.errors import ErrorCode, TandemError

# No field's name starts so: a path leaves such steps out.
_TAG = "@"

_UNSUPPORTED = {
    "block": "Unsupported content block type: '{}'",
    "source": "Unsupported image source type: '{}'; send the image as `base64` or `url`",
}


class Wire(BaseModel):
    """Strict: a string is never read as a number, a number never as a boolean.

    The docstrings of the models and of their fields are published in `/openapi.json`.
    """

    model_config = ConfigDict(
        strict=True, frozen=True, extra="ignore", use_attribute_docstrings=True
    )


def _as_int(value: Any) -> Any:
    """Read 5.0 as 5: JSON has one kind of number, and many clients write all of them so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WholeNumber = BeforeValidator(_as_int)
"""Marks an integer. Put it last: what stands before it is checked after it."""


def tag(family: str, kind: str) -> str:
    """Name one member of a union; `family` says what the union is made of."""
    return f"{_TAG}{family}:{kind}"


def by_type(family: str, default: str) -> Discriminator:
    """Tell a union's members apart by their `type`.

    What has no usable type is read as `default`, whose own errors say what is missing.
    """

    def find(value: Any) -> str:
        kind = value.get("type") if isinstance(value, dict) else None
        return tag(family, kind if isinstance(kind, str) else default)

    return Discriminator(find)


def invalid(message: str) -> TandemError:
    """Return the error of a request that cannot be right."""
    return TandemError(ErrorCode.INVALID_REQUEST, message)


def first_error(error: ValidationError) -> TandemError:
    """Return the first thing that is wrong, by its dotted path."""
    first = error.errors(include_url=False, include_input=False)[0]
    steps = (str(step) for step in first["loc"])
    path = ".".join(step for step in steps if not step.startswith(_TAG))
    return invalid(f"{path}: {_wording(first)}")


def _wording(detail: ErrorDetails) -> str:
    match detail["type"]:
        case "model_type":
            # pydantic would name the Python class.
            return "Input should be an object"
        case "union_tag_invalid":
            family, _, kind = str(detail["ctx"]["tag"]).removeprefix(_TAG).partition(":")
            return _UNSUPPORTED[family].format(kind)
    return detail["msg"].removeprefix("Value error, ")
