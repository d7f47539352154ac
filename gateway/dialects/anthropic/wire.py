"""The Messages request as it arrives: its fields, their rules and the words of its errors.

Whatever would change what the model sees or may answer is honoured, or refused by its path;
nothing of that kind is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from gateway.dialects.anthropic.blocks import CacheControl, InputMessage, TextBlocks
from gateway.dialects.anthropic.connectors import McpServers, check_connectors
from gateway.dialects.anthropic.history import check_history
from gateway.dialects.anthropic.tools import (
    AnyToolChoice,
    Tools,
    callable_tools,
    check_tools,
    skipped_tools,
)
from gateway.dialects.sampling import MAX_INT, StopSequences, TopK
from gateway.dialects.thinking import Thinking
from gateway.dialects.unknown import UnknownFields, rejection
from gateway.dialects.validation import WholeNumber, Wire, first_error, invalid

# Fields that only tune how a request is served: accepted, and whatever they say is right.
# `output_config.effort` and `thinking.display` are of that kind too.
SERVING_FIELDS = frozenset(
    {"context_management", "diagnostics", "fallbacks", "metadata", "service_tier", "speed"}
)

# Honoured where the operator lets callers bring servers along.
_CONNECTORS = "mcp_servers"

# Fields that ask for something Tandem cannot do, unless they are empty.
UNHONOURED_FIELDS = frozenset({"container", "inference_geo", _CONNECTORS})


def _some_messages(value: list[InputMessage]) -> list[InputMessage]:
    if not value:
        raise ValueError("at least one message is required")
    return value


Tokens = Annotated[int, Field(ge=0, le=MAX_INT), WholeNumber]


class OutputFormat(Wire):
    """The schema that the answer's text must match."""

    type: Literal["json_schema"]
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Wire):
    """How the answer is shaped. `effort` and `task_budget` have no effect."""

    format: OutputFormat | None = None


def _tell_serving_fields(schema: dict[str, Any]) -> None:
    accepted = {"description": "Accepted; it changes nothing in the answer."}
    schema["properties"] |= dict.fromkeys(sorted(SERVING_FIELDS), accepted)


class MessagesBody(Wire):
    """What to answer, and how.

    The sampling fields are legal whatever `anthropic-version` says, because open models take
    them. Fields that are not listed here are ignored and named in the answer's
    `tandem-ignored-fields` header, or refused, as the operator has set.
    """

    model_config = ConfigDict(json_schema_extra=_tell_serving_fields)

    model: Annotated[str, Field(min_length=1, max_length=256)]
    """The id or an alias of a model, in any case."""

    max_tokens: Tokens
    """Most tokens that the answer may have. 0 fills the prefix cache and answers nothing; it
    needs a `cache_control` mark."""

    messages: Annotated[
        list[InputMessage],
        Field(max_length=100_000, fail_fast=True, json_schema_extra={"minItems": 1}),
        AfterValidator(_some_messages),
    ]
    """The conversation. Neighbours of one role are merged into one turn."""

    system: TextBlocks | None = None
    """What the model is told before the conversation."""

    stream: bool | None = None
    """Whether the answer comes as server-sent events."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """0 always picks the likeliest token."""

    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of likely tokens to pick from."""

    top_k: TopK | None = None
    """How many of the likeliest tokens to pick from; 0 and -1 mean no limit."""

    stop_sequences: StopSequences | None = None
    """Texts that end the answer. The one that did is told in `stop_sequence`."""

    tools: Tools | None = None
    """What the model may call, in Anthropic's or OpenAI's shape."""

    tool_choice: AnyToolChoice | None = None
    """Which tools the answer may or must call. Enforced in every form."""

    thinking: Thinking | None = None
    """Switches a reasoning model's thinking. Without it the model's default counts."""

    enable_thinking: bool | None = None
    """The same as a boolean; it wins over `thinking`."""

    mcp_servers: McpServers | None = None
    """MCP servers whose tools are run for the answer, where the operator allows it. Those of a
    server are offered as its `mcp_toolset` among the `tools` says, or all."""

    output_config: OutputConfig | None = None

    output_format: OutputFormat | None = None
    """What clients sent before `output_config` had its `format`, which wins."""

    cache_control: CacheControl | None = None
    """Marks the end of the whole prompt as a prefix to cache."""


class CountTokensBody(MessagesBody):
    """The same as for a message, but `max_tokens` may be left out."""

    max_tokens: Tokens = 0


class DecodedMessages(NamedTuple):
    """A valid body, and the names of the fields that had no effect, in order."""

    body: MessagesBody
    ignored: tuple[str, ...]


def decode_messages(
    obj: dict[str, Any], unknown: UnknownFields = "ignore", *, connectors: bool = False
) -> DecodedMessages:
    """Check a decoded body.

    Raises INVALID_REQUEST that names the first wrong field by its dotted path; with `unknown`
    as "reject", also for the first field that is unknown or cannot be honoured. Tools that
    nobody here can run are skipped and listed either way. Servers that the request brings along
    are honoured with `connectors`.
    """
    decoded = _decode(MessagesBody, obj, unknown, connectors=connectors)
    if decoded.body.max_tokens == 0 and not _is_marked(decoded.body):
        # Filling the cache needs to be meant: without a mark, 0 is a slip of the client's.
        raise invalid(
            "max_tokens: Input should be greater than or equal to 1; "
            "0 is for filling the cache up to a `cache_control` mark"
        )
    return decoded


def _decode(
    kind: type[MessagesBody], obj: dict[str, Any], unknown: UnknownFields, *, connectors: bool
) -> DecodedMessages:
    try:
        body = kind.model_validate(obj if connectors else obj | {_CONNECTORS: None})
    except ValidationError as error:
        raise first_error(error) from None
    check_history(body.messages, check_tools(body.tools))
    if connectors:
        check_connectors(body.mcp_servers, body.tools)
    ignored = sorted(_unhonoured(obj, connectors=connectors))
    if ignored and unknown == "reject":
        raise rejection(body.model, ignored[0])
    return DecodedMessages(body, (*ignored, *skipped_tools(body.tools, connectors=connectors)))


def decode_count(
    obj: dict[str, Any], unknown: UnknownFields = "ignore", *, connectors: bool = False
) -> DecodedMessages:
    """Check the body of `POST /v1/messages/count_tokens`. Raises what `decode_messages` raises."""
    return _decode(CountTokensBody, obj, unknown, connectors=connectors)


def _is_marked(body: MessagesBody) -> bool:
    blocks = [block for message in body.messages for block in message.content]
    # A tool's result has blocks of its own.
    inner = [part for block in blocks for part in getattr(block, "content", None) or ()]
    places = [body, *(body.system or ()), *callable_tools(body.tools), *blocks, *inner]
    return any(getattr(place, "cache_control", None) for place in places)


def _unhonoured(obj: dict[str, Any], *, connectors: bool) -> Iterator[str]:
    known = MessagesBody.model_fields.keys() | SERVING_FIELDS
    if not connectors:
        known -= {_CONNECTORS}
    for name, value in obj.items():
        if name not in known and (value or name not in UNHONOURED_FIELDS):
            yield name
    output_config = obj.get("output_config")
    if output_config and output_config.get("format") and obj.get("output_format"):
        yield "output_format"
