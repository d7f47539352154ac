"""What the wire types share: strictness, unions told apart by `type`, and the words of errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, ValidationError
from pydantic_core import ErrorDetails

from inference.errors import ErrorCode, TandemError

# No field's name starts so: a path leaves such steps out.
_TAG = "@"

# OpenAI's codes for what is wrong with a field; `invalid_value` for what is not among these.
_REASONS = {
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
    **dict.fromkeys(
        (
            *("string_type", "int_type", "int_from_float", "float_type", "bool_type"),
            *("list_type", "dict_type", "model_type"),
        ),
        "invalid_type",
    ),
}

_UNSUPPORTED = {
    "block": "Unsupported content block type: '{}'",
    "item": "Unsupported input item type: '{}'",
    "choice": "Unsupported tool choice: '{}'",
    "format": "Unsupported response format: '{}'",
    "part": "Unsupported content part type: '{}'",
    "role": "Unsupported message role: '{}'",
    "source": "Unsupported image source type: '{}'; send the image as `base64` or `url`",
    "tool": "Unsupported tool type: '{}'; the caller's functions are the only tools here",
}


class Wire(BaseModel):
    """Strict: a string is never read as a number, a number never as a boolean.

    The docstrings of the models and of their fields are published in `/openapi.json`.
    """

    model_config = ConfigDict(
        strict=True, frozen=True, extra="ignore", use_attribute_docstrings=True
    )


Step = str | int


def dotted(steps: Sequence[Step]) -> str:
    """Spell a path as Anthropic does: `messages.0.content`."""
    return ".".join(map(str, steps))


def bracketed(steps: Sequence[Step]) -> str:
    """Spell a path as OpenAI does: `messages[0].content`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)[1:]


def _as_int(value: Any) -> Any:
    """Read 5.0 as 5: JSON has one kind of number, and many clients write all of them so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WholeNumber = BeforeValidator(_as_int)
"""Marks an integer. Put it last: what stands before it is checked after it."""


def tag(family: str, kind: str) -> str:
    """Name one member of a union; `family` says what the union is made of."""
    return f"{_TAG}{family}:{kind}"


def by_type(family: str, default: str, field: str = "type") -> Discriminator:
    """Tell a union's members apart by their `type`, or by another field.

    What has no usable type is read as `default`, whose own errors say what is missing.
    """

    def find(value: Any) -> str:
        kind = value.get(field) if isinstance(value, dict) else None
        return tag(family, kind if isinstance(kind, str) else default)

    return Discriminator(find)


def invalid(message: str, *, param: str | None = None, reason: str | None = None) -> TandemError:
    """Return the error of a request that cannot be right."""
    return TandemError(ErrorCode.INVALID_REQUEST, message, param=param, reason=reason)


def invalid_at(path: str, problem: str) -> TandemError:
    """Return the error of a field whose value cannot be right."""
    return invalid(f"{path}: {problem}", param=path, reason="invalid_value")


def first_error(
    error: ValidationError, spell: Callable[[Sequence[Step]], str] = dotted
) -> TandemError:
    """Return the first thing that is wrong, by its path as `spell` writes it."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = spell([step for step in first["loc"] if not str(step).startswith(_TAG)])
    message = f"{path}: {_wording(first)}"
    return invalid(message, param=path, reason=_REASONS.get(first["type"], "invalid_value"))


def _wording(detail: ErrorDetails) -> str:
    match detail["type"]:
        case "model_type":
            # pydantic would name the Python class.
            return "Input should be an object"
        case "union_tag_invalid":
            family, _, kind = str(detail["ctx"]["tag"]).removeprefix(_TAG).partition(":")
            return _UNSUPPORTED[family].format(kind)
    return detail["msg"].removeprefix("Value error, ")
