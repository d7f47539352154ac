"""What Anthropic's routes answer. The encoders write it; a test holds their output against this."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel

from gateway.dialects.anthropic.encode import STOP_REASONS
from gateway.openapi.responses import Error
from gateway.openapi.schemas import AnswerModel

Count = Annotated[int, Field(ge=0)]
StopReason = Annotated[
    str | None, Field(json_schema_extra={"enum": [*STOP_REASONS.values(), None]})
]


class ResponseTextBlock(AnswerModel):
    """Text of the answer."""

    type: Literal["text"]
    text: str


class ResponseThinkingBlock(AnswerModel):
    """The model's reasoning. The signature is empty."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ResponseToolUseBlock(AnswerModel):
    """A call that the caller is asked to make."""

    type: Literal["tool_use"]
    id: Annotated[str, Field(pattern="^toolu_")]
    name: str
    input: dict[str, Any]


class ResponseMcpToolUseBlock(AnswerModel):
    """A call that the service made itself, whole from the start."""

    type: Literal["mcp_tool_use"]
    id: Annotated[str, Field(pattern="^mcptoolu_")]
    name: str
    server_name: str
    input: dict[str, Any]


class ResponseMcpToolResultBlock(AnswerModel):
    """What such a call came to. One that says nothing has no content."""

    type: Literal["mcp_tool_result"]
    tool_use_id: Annotated[str, Field(pattern="^mcptoolu_")]
    is_error: bool
    content: list[ResponseTextBlock]


ResponseBlock = Annotated[
    ResponseTextBlock
    | ResponseThinkingBlock
    | ResponseToolUseBlock
    | ResponseMcpToolUseBlock
    | ResponseMcpToolResultBlock,
    Field(discriminator="type"),
]


class TokenCounts(AnswerModel):
    """The first three together are the whole prompt."""

    input_tokens: Count
    cache_creation_input_tokens: Count
    """Tokens up to the last `cache_control` mark that the prefix cache did not have."""
    cache_read_input_tokens: Count
    """Tokens that the prefix cache had."""
    output_tokens: Count


class CacheCreation(AnswerModel):
    """`cache_creation_input_tokens` by how long they are kept."""

    ephemeral_5m_input_tokens: Count
    ephemeral_1h_input_tokens: Count


class OutputTokensDetails(AnswerModel):
    """How many of `output_tokens` were reasoning."""

    thinking_tokens: Count


class Usage(TokenCounts):
    """The final counts. The first three together are the whole prompt."""

    cache_creation: CacheCreation
    output_tokens_details: OutputTokensDetails


class Stop(AnswerModel):
    """Why the answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None
    """The text of `stop_sequences` that ended the answer. It is not part of it."""
    stop_details: None


class _Head(Stop):
    id: Annotated[str, Field(pattern="^msg_")]
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    """The model's id in the catalogue, whatever name was asked for."""
    content: list[ResponseBlock]


class StartedMessage(_Head):
    """A message that has only begun: what the cache had is told at its end."""

    usage: TokenCounts


class Message(_Head):
    """A whole answer."""

    usage: Usage


class MessageStart(AnswerModel):
    """The first event."""

    type: Literal["message_start"]
    message: StartedMessage


class ContentBlockStart(AnswerModel):
    """A block begins. One block is open at a time."""

    type: Literal["content_block_start"]
    index: Count
    content_block: ResponseBlock


class TextDelta(AnswerModel):
    """The next piece of text."""

    type: Literal["text_delta"]
    text: str


class ThinkingDelta(AnswerModel):
    """The next piece of reasoning."""

    type: Literal["thinking_delta"]
    thinking: str


class SignatureDelta(AnswerModel):
    """The end of a thinking block; the signature is empty."""

    type: Literal["signature_delta"]
    signature: str


class InputJsonDelta(AnswerModel):
    """The next piece of a call's arguments. All pieces together are one JSON object."""

    type: Literal["input_json_delta"]
    partial_json: str


class ContentBlockDelta(AnswerModel):
    """The next piece of the open block."""

    type: Literal["content_block_delta"]
    index: Count
    delta: Annotated[
        TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta, Field(discriminator="type")
    ]


class ContentBlockStop(AnswerModel):
    """The open block ends."""

    type: Literal["content_block_stop"]
    index: Count


class MessageDelta(AnswerModel):
    """The answer has ended, and what it came to."""

    type: Literal["message_delta"]
    delta: Stop
    usage: Usage


class MessageStop(AnswerModel):
    """The last event of a stream that went well."""

    type: Literal["message_stop"]


class Ping(AnswerModel):
    """Nothing happened for a while."""

    type: Literal["ping"]


class MessageStreamEvent(RootModel[Any]):
    """The data of one event of a stream. A stream ends with `message_stop` or `error`."""

    root: Annotated[
        MessageStart
        | ContentBlockStart
        | ContentBlockDelta
        | ContentBlockStop
        | MessageDelta
        | MessageStop
        | Ping
        | Error,
        Field(discriminator="type"),
    ]


class TokenCount(AnswerModel):
    """What a message with this body would count."""

    input_tokens: Count
    """The whole prompt, template, tools and images included."""


class Capability(AnswerModel):
    """Whether something is supported."""

    supported: bool


class ContextManagement(Capability):
    """Kinds of context editing."""

    clear_thinking_20251015: Capability
    clear_tool_uses_20250919: Capability
    compact_20260112: Capability


class Effort(Capability):
    """Levels of effort."""

    low: Capability
    medium: Capability
    high: Capability
    xhigh: Capability
    max: Capability


class ServerTools(Capability):
    """Tools that the server runs."""

    code_execution: Capability
    web_search: Capability


class ThinkingTypes(AnswerModel):
    """Which values of `thinking.type` have an effect."""

    adaptive: Capability
    between_tools: Capability
    disabled: Capability
    enabled: Capability


class ThinkingCapability(Capability):
    """Whether the model can think, and how it is told to."""

    types: ThinkingTypes


class Capabilities(AnswerModel):
    """What the model can do."""

    batch: Capability
    citations: Capability
    code_execution: Capability
    context_management: ContextManagement
    effort: Effort
    image_input: Capability
    pdf_input: Capability
    server_tools: ServerTools
    structured_outputs: Capability
    thinking: ThinkingCapability
    tools: Capability


class Model(AnswerModel):
    """A model, in one row that Anthropic's and OpenAI's clients both read."""

    id: str
    object: Literal["model"]
    created: Count
    """Seconds of Unix time."""
    owned_by: str
    type: Literal["model"]
    display_name: str
    created_at: datetime
    lifecycle: Literal["active"]
    deprecated_at: None
    retires_at: None
    line: None
    max_input_tokens: Count
    max_tokens: Count
    provider: str
    modality: Literal["text_generation"]
    context_tokens: Count
    """Prompt and answer together."""
    capabilities: Capabilities


class ModelList(AnswerModel):
    """A page of models, or all of them."""

    object: Literal["list"]
    data: list[Model]
    has_more: bool
    first_id: str | None
    last_id: str | None
