"""What the Chat route answers. The encoder writes it; a test holds its output against this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from gateway.dialects.chat.encode import FINISH_REASONS
from gateway.openapi.schemas import AnswerModel

Count = Annotated[int, Field(ge=0)]
_REASONS = [*dict.fromkeys(FINISH_REASONS.values()), None]
FinishReason = Annotated[str | None, Field(json_schema_extra={"enum": _REASONS})]
CallId = Annotated[str, Field(pattern="^call_")]


def _optional(*names: str) -> Callable[[dict[str, Any]], None]:
    """Say which fields may be missing."""

    def amend(schema: dict[str, Any]) -> None:
        schema["required"] = [name for name in schema["required"] if name not in names]

    return amend


class ChatCalledFunction(AnswerModel):
    """Which function the caller is asked to run, and with what: a JSON object as text."""

    name: str
    arguments: str


class ChatMessageToolCall(AnswerModel):
    """A call that the caller is asked to make."""

    id: CallId
    type: Literal["function"]
    function: ChatCalledFunction


class ChatResponseMessage(AnswerModel):
    """The answer."""

    model_config = ConfigDict(json_schema_extra=_optional("tool_calls"))

    role: Literal["assistant"]
    content: str | None
    """Null where there are only calls."""
    refusal: None
    annotations: list[Any]
    reasoning_content: str | None
    reasoning: str | None
    """The same as `reasoning_content`."""
    tool_calls: list[ChatMessageToolCall]


class ChatLikelyToken(AnswerModel):
    """A token and the natural logarithm of its probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(ChatLikelyToken):
    """A token of the answer, and those that were likeliest in its place."""

    top_logprobs: list[ChatLikelyToken]


class ChatLogprobs(AnswerModel):
    """How likely the tokens of the text were."""

    content: list[ChatTokenLogprob]
    refusal: None


class ChatChoice(AnswerModel):
    """One of the answers."""

    index: Count
    message: ChatResponseMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | None
    """The text of `stop` that ended the answer. It is not part of it."""


class PromptTokensDetails(AnswerModel):
    """How many of `prompt_tokens` the prefix cache had."""

    cached_tokens: Count
    audio_tokens: Count


class CompletionTokensDetails(AnswerModel):
    """How many of `completion_tokens` were reasoning."""

    reasoning_tokens: Count
    audio_tokens: Count
    accepted_prediction_tokens: Count
    rejected_prediction_tokens: Count


class ChatUsage(AnswerModel):
    """The token counts of all answers together. The prompt is counted once."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class _Head(AnswerModel):
    id: Annotated[str, Field(pattern="^chatcmpl-")]
    created: Count
    """Seconds of Unix time."""
    model: str
    """The model's id in the catalogue, whatever name was asked for."""
    service_tier: Literal["default", "flex"]
    """The tier that served it."""
    system_fingerprint: None


class ChatCompletion(_Head):
    """Whole answers."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: ChatUsage


class ChatFunctionDelta(AnswerModel):
    """The next piece of a call's arguments; the name comes with the first."""

    model_config = ConfigDict(json_schema_extra=_optional("name"))

    name: str
    arguments: str


class ChatToolCallDelta(AnswerModel):
    """The next piece of a call."""

    model_config = ConfigDict(json_schema_extra=_optional("id", "type"))

    index: Count
    id: CallId
    type: Literal["function"]
    function: ChatFunctionDelta


class ChatDelta(AnswerModel):
    """The next piece of an answer; the role comes with the first."""

    model_config = ConfigDict(
        json_schema_extra=_optional(
            *("role", "content", "refusal", "reasoning_content", "reasoning", "tool_calls")
        )
    )

    role: Literal["assistant"]
    content: str
    refusal: None
    reasoning_content: str
    reasoning: str
    tool_calls: list[ChatToolCallDelta]


class ChatChunkChoice(AnswerModel):
    """A piece of one of the answers. The last one has a `finish_reason`."""

    model_config = ConfigDict(json_schema_extra=_optional("stop_reason"))

    index: Count
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | None


class ChatCompletionChunk(_Head):
    """A piece of the answers, or, without choices, the token counts."""

    model_config = ConfigDict(json_schema_extra=_optional("usage"))

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: ChatUsage | None
