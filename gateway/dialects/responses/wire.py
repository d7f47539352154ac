"""The Responses request as it arrives: its fields, their rules and the words of its errors.

Whatever would change what the model sees or may answer is honoured, or refused by its path;
nothing of that kind is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, JsonValue, Tag, ValidationError

from gateway.dialects.responses.history import InputItems
from gateway.dialects.responses.tools import ToolChoiceBody, Tools, check_tools, skipped_tools
from gateway.dialects.sampling import MAX_INT, TopK
from gateway.dialects.unknown import UnknownFields, rejection
from gateway.dialects.validation import (
    WholeNumber,
    Wire,
    bracketed,
    by_type,
    first_error,
    invalid,
    invalid_at,
    tag,
)

LOGPROBS = "message.output_text.logprobs"
_ENCRYPTED = "reasoning.encrypted_content"

# Fields that only tune how a request is served: accepted, and whatever they say is right.
# `text.verbosity` and how much effort `reasoning.effort` wants are of that kind too.
SERVING_FIELDS = frozenset(
    {
        "background_options",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "stream_options",
        "user",
    }
)

# Fields that would change what the model is told.
_REFUSED = {
    "conversation": "conversations are not kept here; use `previous_response_id`",
    "prompt": "prompts are not kept here; send `instructions` and `input`",
}


class ResponsesJsonSchema(Wire):
    """The schema that the answer's text must match. It is enforced, `strict` or not."""

    type: Literal["json_schema"]
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None
    description: str | None = None


class ResponsesPlainText(Wire):
    """Any text."""

    type: Literal["text"]


class ResponsesJsonObject(Wire):
    """Any JSON object."""

    type: Literal["json_object"]


class ResponsesTextConfig(Wire):
    """How the answer's text is shaped. `verbosity` has no effect."""

    format: (
        Annotated[
            Annotated[ResponsesPlainText, Tag(tag("format", "text"))]
            | Annotated[ResponsesJsonObject, Tag(tag("format", "json_object"))]
            | Annotated[ResponsesJsonSchema, Tag(tag("format", "json_schema"))],
            by_type("format", "text"),
        ]
        | None
    ) = None


class ResponsesReasoningConfig(Wire):
    """Whether the model thinks, and how its reasoning is shown.

    An `effort` of `none` switches it off, any other one on. With a `summary`, or its older name
    `generate_summary`, the reasoning is given as its own summary, as it is: no second model makes
    it shorter.
    """

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponsesBackgroundOptions(Wire):
    """By when a response in the background is wanted."""

    completion_window: str | None = None


Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)] | JsonValue],
    Field(max_length=16),
]


def _tell_serving_fields(schema: dict[str, Any]) -> None:
    accepted = {"description": "Accepted; it changes nothing in the answer."}
    fields = sorted(SERVING_FIELDS - schema["properties"].keys())
    schema["properties"] |= dict.fromkeys(fields, accepted)


class ResponsesBody(Wire):
    """What to answer, and how.

    Fields that are not listed here are ignored and named in the answer's `tandem-ignored-fields`
    header, or refused, as the operator has set.
    """

    model_config = ConfigDict(json_schema_extra=_tell_serving_fields)

    model: Annotated[str, Field(min_length=1, max_length=256)]
    """The id or an alias of a model, in any case."""

    input: InputItems | None = None
    """What to answer: a text, or the items of a conversation."""

    instructions: str | None = None
    """What the model is told before the conversation. The next response does not inherit it."""

    previous_response_id: str | None = None
    """The response that this one goes on from: everything in it and before it is told first."""

    stream: bool | None = None
    """Whether the answer comes as server-sent events."""

    store: bool | None = None
    """Whether the response can be read again later. True unless told otherwise."""

    background: bool | None = None
    """Whether it is made in the background: the answer comes at once and is empty."""

    background_options: ResponsesBackgroundOptions | None = None

    max_output_tokens: Annotated[int, Field(ge=1, le=MAX_INT), WholeNumber] | None = None
    """Most tokens that the answer may have, reasoning included. Without it: what the prompt leaves
    of the model's context."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """0 always picks the likeliest token."""

    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of likely tokens to pick from."""

    top_k: TopK | None = None
    """How many of the likeliest tokens to pick from; 0 and -1 mean no limit."""

    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least probability of a token that is picked, as a share of the likeliest one's."""

    repetition_penalty: Annotated[float, Field(gt=0, le=2)] | None = None
    """Above 1 it makes tokens that were there already less likely."""

    seed: Annotated[int, Field(ge=-(2**63), lt=2**63), WholeNumber] | None = None
    """The same seed gives the same answer, as far as the engine can."""

    tools: Tools | None = None
    """What the model may call: functions, and MCP servers where the operator allows requests to
    bring them along. Other kinds are skipped and listed as ignored."""

    tool_choice: ToolChoiceBody | None = None
    """Which tools the answer may or must call. Enforced in every form."""

    parallel_tool_calls: bool | None = None
    """Whether one answer may call several tools."""

    text: ResponsesTextConfig | None = None

    reasoning: ResponsesReasoningConfig | None = None

    enable_thinking: bool | None = None
    """Switches a reasoning model's thinking; it wins over `reasoning`."""

    include_reasoning: bool | None = None
    """Whether the reasoning is shown. True unless told otherwise."""

    include: list[str] | None = None
    """What else to tell. `message.output_text.logprobs` asks for log probabilities."""

    top_logprobs: Annotated[int, Field(ge=0, le=20), WholeNumber] | None = None
    """How many likely tokens to tell at each place, where log probabilities are included."""

    truncation: Literal["auto", "disabled"] | None = None
    """`auto` has no effect: a prompt that is too long is refused."""

    metadata: Metadata | None = None
    """Up to 16 pairs that come back with the response."""

    service_tier: str | None = None
    """`flex` costs less and may be refused when there is no room; others are all `default`."""

    @property
    def wants_store(self) -> bool:
        """Whether it is to be kept."""
        return self.store is not False

    @property
    def wants_logprobs(self) -> bool:
        """Whether log probabilities are told."""
        return LOGPROBS in (self.include or ())


class DecodedResponses(NamedTuple):
    """A valid body, and the names of the fields that had no effect, in order."""

    body: ResponsesBody
    ignored: tuple[str, ...]


def decode(
    obj: dict[str, Any], unknown: UnknownFields = "ignore", *, connectors: bool = False
) -> DecodedResponses:
    """Check a decoded body.

    Raises INVALID_REQUEST that names the first wrong field, in `param` too; with `unknown` as
    "reject", also for the first field that is unknown or cannot be honoured. Tools that nobody
    here can run are skipped and listed either way.
    """
    try:
        body = ResponsesBody.model_validate(obj)
    except ValidationError as error:
        raise first_error(error, bracketed) from None
    for name, problem in _REFUSED.items():
        if obj.get(name):
            raise invalid_at(name, problem)
    if not body.input and not body.previous_response_id:
        raise _without_input(obj)
    check_tools(body.tools, connectors=connectors)
    ignored = [*sorted(_unknown(obj)), *_unhonoured(body)]
    if ignored and unknown == "reject":
        raise rejection(body.model, ignored[0])
    return DecodedResponses(body, (*ignored, *skipped_tools(body.tools)))


def _without_input(obj: dict[str, Any]) -> Exception:
    if obj.get("input") is None:
        return invalid("input: Field required", param="input", reason="missing_required_parameter")
    return invalid_at("input", "input must not be empty")


def _unknown(obj: dict[str, Any]) -> Iterator[str]:
    known = ResponsesBody.model_fields.keys() | SERVING_FIELDS | _REFUSED.keys()
    for name, value in obj.items():
        # What is empty asks for nothing.
        if name not in known and value not in (None, [], {}):
            yield name


def _unhonoured(body: ResponsesBody) -> Iterator[str]:
    for index, name in enumerate(body.include or ()):
        if name == _ENCRYPTED:
            # ResponsesReasoning is told as it is: nothing here encrypts it.
            yield f"include[{index}]"
    if body.top_logprobs and not body.wants_logprobs:
        yield "top_logprobs"
    if body.truncation == "auto":
        yield "truncation"
