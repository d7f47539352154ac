"""The Messages request as it arrives: its fields, their rules and the words of its errors.

Text only so far. Whatever would change what the model sees or may answer is refused by name,
never dropped: other content blocks, and `tools` that are not empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic_core import ErrorDetails

from inference.errors import ErrorCode, TandemError

UnknownFields = Literal["ignore", "reject"]

MAX_INT = 2**31 - 1
"""Largest count that engines take."""

MAX_STOP_SEQUENCES = 256
"""The engine looks for every one of them after every token."""

# Fields that only tune how a request is served: accepted, and whatever they say is right.
# No model reasons yet, and one that does not is "always off", whatever the switches say.
SERVING_FIELDS = frozenset(
    {
        "cache_control",
        "context_management",
        "diagnostics",
        "enable_thinking",
        "fallbacks",
        "metadata",
        "output_config",
        "service_tier",
        "speed",
        "thinking",
    }
)

# Fields that ask for something Tandem cannot do, unless they are empty.
UNHONOURED_FIELDS = frozenset({"container", "inference_geo", "mcp_servers"})


def _non_empty_text(value: str) -> str:
    if not value:
        raise ValueError("text content blocks must be non-empty")
    return value


def _non_empty_stop(value: str) -> str:
    if not value:
        raise ValueError("each stop sequence must be non-empty")
    return value


def _supported_block(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(kind := value.get("type"), str) and kind != "text":
        raise ValueError(f"Unsupported content block type: '{kind}'")
    return value


def _as_blocks(value: Any) -> Any:
    """Read a plain string as one text block, so that the rest sees one form."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}] if value else []
    if not isinstance(value, list):
        raise ValueError("Input should be a string or a list of content blocks")
    return value


def _some_blocks(value: list[TextBlock]) -> list[TextBlock]:
    if not value:
        raise ValueError("message content must be non-empty")
    return value


def _some_messages(value: list[InputMessage]) -> list[InputMessage]:
    if not value:
        raise ValueError("at least one message is required")
    return value


def _no_tools(value: list[Any]) -> list[Any]:
    if value:
        raise ValueError("tools are not supported yet; remove `tools`, or send an empty list")
    return value


def _no_forced_tool(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else value
    if kind not in (None, "auto", "none"):
        raise ValueError("a tool can be required only when `tools` are given")
    return value


class _Wire(BaseModel):
    """Strict: a string is never read as a number, a number never as a boolean."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class TextBlock(_Wire):
    """A text block. `cache_control` and `citations` on it have no effect."""

    type: Literal["text"]
    text: Annotated[str, AfterValidator(_non_empty_text)]


Block = Annotated[TextBlock, BeforeValidator(_supported_block)]
Blocks = Annotated[list[Block], Field(fail_fast=True), BeforeValidator(_as_blocks)]


class InputMessage(_Wire):
    """One turn; a `system` turn may stand anywhere in the conversation."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[Blocks, AfterValidator(_some_blocks)]


StopSequence = Annotated[str, AfterValidator(_non_empty_stop)]
StopSequences = Annotated[list[StopSequence], Field(max_length=MAX_STOP_SEQUENCES, fail_fast=True)]


class MessagesBody(_Wire):
    """The body of `POST /v1/messages`.

    The sampling fields are legal whatever `anthropic-version` says, because open models take
    them. `temperature` goes up to 2 for the same reason; a `top_k` of 0 or -1 means no limit.
    """

    model: Annotated[str, Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1, le=MAX_INT)]
    messages: Annotated[
        list[InputMessage],
        Field(max_length=100_000, fail_fast=True),
        AfterValidator(_some_messages),
    ]
    system: Blocks | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=MAX_INT)] | None = None
    stop_sequences: StopSequences | None = None
    tools: Annotated[list[Any], AfterValidator(_no_tools)] | None = None
    tool_choice: Annotated[Any, AfterValidator(_no_forced_tool)] = None


class DecodedMessages(NamedTuple):
    """A valid body, and the names of the fields that had no effect, in order."""

    body: MessagesBody
    ignored: tuple[str, ...]


def decode_messages(obj: dict[str, Any], unknown: UnknownFields = "ignore") -> DecodedMessages:
    """Check a decoded body.

    Raises INVALID_REQUEST that names the first wrong field by its dotted path; with `unknown`
    as "reject", also for the first field that is unknown or cannot be honoured.
    """
    try:
        body = MessagesBody.model_validate(obj)
    except ValidationError as error:
        raise _invalid(_first_error(error)) from None
    ignored = tuple(sorted(_unhonoured(obj)))
    if ignored and unknown == "reject":
        raise _invalid(_rejection(body.model, ignored[0]))
    return DecodedMessages(body, ignored)


def ignored_header(ignored: Iterable[str]) -> bytes:
    """Return the names as a header's value: percent-encoded, since callers choose them."""
    return b", ".join(quote(name, safe="").encode("ascii") for name in ignored)


def _unhonoured(obj: dict[str, Any]) -> Iterator[str]:
    known = MessagesBody.model_fields.keys() | SERVING_FIELDS
    for name, value in obj.items():
        if name not in known and (value or name not in UNHONOURED_FIELDS):
            yield name
    output_config = obj.get("output_config")
    if isinstance(output_config, dict) and output_config.get("format"):
        yield "output_config.format"


def _rejection(model: str, name: str) -> str:
    return (
        f"{name}: Extra inputs are not permitted. Model '{model}' cannot honour `{name}`. "
        f"Remove `{name}`, or have the operator set UNKNOWN_FIELDS to ignore."
    )


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(step) for step in first["loc"])
    return f"{path}: {_wording(first)}"


def _wording(detail: ErrorDetails) -> str:
    if detail["type"] == "model_type":
        # pydantic would name the Python class.
        return "Input should be an object"
    return detail["msg"].removeprefix("Value error, ")


def _invalid(message: str) -> TandemError:
    return TandemError(ErrorCode.INVALID_REQUEST, message)
