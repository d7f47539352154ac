"""The Chat request as it arrives: its fields, their rules and the words of its errors.

Whatever would change what the model sees or may answer is honoured, or refused by its path;
nothing of that kind is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field, Tag, ValidationError

from gateway.dialects.chat.history import check_history
from gateway.dialects.chat.messages import ChatMessage
from gateway.dialects.chat.tools import ChatToolChoice, ChatTools, check_tools
from gateway.dialects.sampling import MAX_INT, StopSequences, TopK
from gateway.dialects.thinking import Thinking
from gateway.dialects.unknown import UnknownFields, rejection
from gateway.dialects.validation import (
    WholeNumber,
    Wire,
    bracketed,
    by_type,
    first_error,
    invalid_at,
    tag,
)

MAX_CHOICES = 128
"""The most answers to one prompt, as at OpenAI."""

MAX_BIASES = 1024

# Fields that only tune how a request is served, or are about what is kept of it: accepted, and
# whatever they say is right.
SERVING_FIELDS = frozenset(
    {
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "user",
    }
)

# Fields that ask for something Tandem cannot do, unless they are empty.
UNHONOURED_FIELDS = frozenset({"audio", "moderation", "store", "verbosity", "web_search_options"})

_LEGACY_FIELDS = {"functions": "tools", "function_call": "tool_choice"}

Tokens = Annotated[int, Field(ge=1, le=MAX_INT), WholeNumber]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class TextFormat(Wire):
    """Text, as it comes."""

    type: Literal["text"]


class JsonObjectFormat(Wire):
    """Any JSON object."""

    type: Literal["json_object"]


class NamedSchema(Wire):
    """A schema by its name. It is enforced, whatever `strict` says."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    json_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class JsonSchemaFormat(Wire):
    """JSON that matches a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[
    Annotated[TextFormat, Tag(tag("format", "text"))]
    | Annotated[JsonObjectFormat, Tag(tag("format", "json_object"))]
    | Annotated[JsonSchemaFormat, Tag(tag("format", "json_schema"))],
    by_type("format", "text"),
]


class ChatReasoning(Wire):
    """How much a reasoning model thinks, in the shape of the Responses API and of gateways."""

    effort: Effort | None = None
    enabled: bool | None = None
    max_tokens: Tokens | None = None
    """Most tokens of reasoning, where the engine can bound them."""
    exclude: bool | None = None
    """Whether the reasoning is left out of the answer."""


class TemplateOptions(Wire):
    """The options of the model's template that callers may set: whether it thinks."""

    enable_thinking: bool | None = None
    thinking: bool | None = None


class StreamOptions(Wire):
    """What a stream tells beside the answer."""

    include_usage: bool | None = None
    """Whether a last chunk, without choices, has the token counts."""


def _tell_serving_fields(schema: dict[str, Any]) -> None:
    accepted = {"description": "Accepted; it changes nothing in the answer."}
    schema["properties"] |= dict.fromkeys(sorted(SERVING_FIELDS), accepted)


class ChatBody(Wire):
    """What to answer, and how.

    Fields that are not listed here are ignored and named in the answer's `tandem-ignored-fields`
    header, or refused, as the operator has set.
    """

    model_config = ConfigDict(json_schema_extra=_tell_serving_fields)

    model: Annotated[str, Field(min_length=1, max_length=256)]
    """The id or an alias of a model, in any case."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=100_000, fail_fast=True)]
    """The conversation. Neighbours of one role are merged into one turn."""

    max_completion_tokens: Tokens | None = None
    """Most tokens that the answer may have, reasoning included. Without it: what the prompt leaves
    of the model's context."""

    max_tokens: Tokens | None = None
    """The older name of `max_completion_tokens`, which wins."""

    min_tokens: Annotated[int, Field(ge=0, le=MAX_INT), WholeNumber] | None = None
    """Least tokens before the answer may end."""

    n: Annotated[int, Field(ge=1, le=MAX_CHOICES), WholeNumber] | None = None
    """How many answers. Each is a request of its own to limits; the prompt is counted once."""

    stream: bool | None = None
    """Whether the answer comes as server-sent events."""

    stream_options: StreamOptions | None = None
    """Only with `stream`."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """0 always picks the likeliest token."""

    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """The share of likely tokens to pick from."""

    top_k: TopK | None = None
    """How many of the likeliest tokens to pick from; 0 and -1 mean no limit."""

    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """The least probability of a token that is picked, as a share of the likeliest one's."""

    frequency_penalty: Penalty | None = None
    """Above 0 makes a token less likely the more often it stands in the answer."""

    presence_penalty: Penalty | None = None
    """Above 0 makes a token less likely once it stands in the answer."""

    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    """Above 1 makes tokens of the prompt and the answer less likely."""

    logit_bias: (
        Annotated[
            dict[
                Annotated[str, Field(pattern=r"^\d{1,9}$")],
                Annotated[float, Field(ge=-100, le=100)],
            ],
            Field(max_length=MAX_BIASES),
        ]
        | None
    ) = None
    """By token id, what is added to the token's logit."""

    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1), WholeNumber] | None = None
    """The same seed and request have the same answer, as far as the engine can."""

    stop: (
        Annotated[
            StopSequences,
            BeforeValidator(_as_list, json_schema_input_type=str | StopSequences),
        ]
        | None
    ) = None
    """A text, or several, that end the answer and are not part of it."""

    logprobs: bool | None = None
    """Whether the answer tells how likely each of its tokens was."""

    top_logprobs: Annotated[int, Field(ge=0, le=20), WholeNumber] | None = None
    """How many likely others are told beside each token. Only with `logprobs`."""

    tools: ChatTools | None = None
    """What the model may call."""

    tool_choice: ChatToolChoice | None = None
    """Which tools the answer may or must call. Enforced in every form."""

    parallel_tool_calls: bool | None = None
    """Whether the answer may have more than one call."""

    response_format: ResponseFormat | None = None
    """What the answer's text must match. Enforced while it is generated."""

    modalities: list[Literal["text"]] | None = None
    """Answers are text."""

    service_tier: str | None = None
    """`flex` costs less and waits longer. Anything else is `default`."""

    enable_thinking: bool | None = None
    """Switches a reasoning model's thinking; it wins over the fields below."""

    chat_template_kwargs: TemplateOptions | None = None

    thinking: Thinking | None = None

    reasoning: ChatReasoning | None = None

    reasoning_effort: Effort | None = None
    """`none` switches thinking off, everything else on."""

    include_reasoning: bool | None = None
    """Whether the answer shows the reasoning. It does unless this is false."""

    @property
    def choices(self) -> int:
        """How many answers are asked for."""
        return self.n or 1

    @property
    def wants_flex(self) -> bool:
        """Whether the caller would rather wait than pay the full price."""
        return self.service_tier == "flex"

    @property
    def shows_reasoning(self) -> bool:
        """Whether the answer is to have the reasoning in it."""
        excluded = self.reasoning is not None and self.reasoning.exclude
        return self.include_reasoning is not False and not excluded

    @property
    def wants_usage(self) -> bool:
        """Whether a stream is to tell its token counts."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class DecodedChat(NamedTuple):
    """A valid body, and the names of the fields that had no effect, in order."""

    body: ChatBody
    ignored: tuple[str, ...]


def decode_chat(obj: dict[str, Any], unknown: UnknownFields = "ignore") -> DecodedChat:
    """Check a decoded body.

    Raises INVALID_REQUEST that names the first wrong field by its path; with `unknown` as
    "reject", also for the first field that is unknown or cannot be honoured.
    """
    for name, instead in _LEGACY_FIELDS.items():
        if obj.get(name):
            raise invalid_at(name, f"no longer taken; send `{instead}`")
    try:
        body = ChatBody.model_validate(obj)
    except ValidationError as error:
        raise first_error(error, bracketed) from None
    _check(body)
    ignored = tuple(sorted(_unhonoured(obj)))
    if ignored and unknown == "reject":
        raise rejection(body.model, ignored[0])
    return DecodedChat(body, (*ignored, *_names(obj)))


def _check(body: ChatBody) -> None:
    if body.stream_options is not None and not body.stream:
        raise invalid_at("stream_options", "only allowed when `stream` is true")
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid_at("top_logprobs", "only allowed when `logprobs` is true")
    longest = body.max_completion_tokens or body.max_tokens
    if longest and body.min_tokens and body.min_tokens > longest:
        raise invalid_at("min_tokens", "more than the answer may have")
    check_tools(body.tools or ())
    check_history(body.messages)


def _unhonoured(obj: dict[str, Any]) -> Iterator[str]:
    known = ChatBody.model_fields.keys() | SERVING_FIELDS | _LEGACY_FIELDS.keys()
    for name, value in obj.items():
        if name not in known and (value or name not in UNHONOURED_FIELDS):
            yield name
    for name in obj.get("chat_template_kwargs") or ():
        if name not in TemplateOptions.model_fields:
            yield f"chat_template_kwargs.{name}"


def _names(obj: dict[str, Any]) -> Iterator[str]:
    """Yield the participants' names: no template knows what to do with them."""
    for index, message in enumerate(obj["messages"]):
        if message.get("name"):
            yield f"messages[{index}].name"
