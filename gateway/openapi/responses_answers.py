"""What the Responses routes answer. The encoder writes it; a test holds its output against this."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field

from gateway.openapi.schemas import AnswerModel

Count = Annotated[int, Field(ge=0)]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class ResponseLikelyToken(AnswerModel):
    """A token and the natural logarithm of its probability."""

    token: str
    bytes: list[int]
    logprob: float


class ResponseTokenLogprob(ResponseLikelyToken):
    """A token of the answer, and those that were likeliest in its place."""

    top_logprobs: list[ResponseLikelyToken]


class ResponseOutputText(AnswerModel):
    """Text of the answer."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[ResponseTokenLogprob]
    """Empty unless they were included."""


class ResponseReasoningText(AnswerModel):
    """Reasoning, as the model made it."""

    type: Literal["reasoning_text"]
    text: str


class ResponseSummaryText(AnswerModel):
    """Reasoning, where a summary was asked for."""

    type: Literal["summary_text"]
    text: str


class ResponseMessageItem(AnswerModel):
    """A piece of the answer's text."""

    id: Annotated[str, Field(pattern="^msg_")]
    type: Literal["message"]
    status: ItemStatus
    role: Literal["assistant"]
    content: list[ResponseOutputText]


def _without_content(schema: dict[str, Any]) -> None:
    schema["required"].remove("content")


class ResponseReasoningItem(AnswerModel):
    """A piece of reasoning. `content` is there once it is made, unless a summary is."""

    model_config = ConfigDict(json_schema_extra=_without_content)

    id: Annotated[str, Field(pattern="^rs_")]
    type: Literal["reasoning"]
    status: ItemStatus
    summary: list[ResponseSummaryText]
    content: list[ResponseReasoningText]


class ResponseFunctionCallItem(AnswerModel):
    """A call that the caller is asked to make. `arguments` are a JSON object as text."""

    id: Annotated[str, Field(pattern="^fc_")]
    type: Literal["function_call"]
    status: ItemStatus
    call_id: Annotated[str, Field(pattern="^call_")]
    name: str
    arguments: str


class ResponseMcpErrorText(AnswerModel):
    """What the tool said."""

    type: Literal["text"]
    text: str


class ResponseMcpError(AnswerModel):
    """What a call came to that failed."""

    type: Literal["mcp_tool_execution_error"]
    content: list[ResponseMcpErrorText]


class ResponseMcpCallItem(AnswerModel):
    """A call that the service made itself, with what it came to."""

    id: Annotated[str, Field(pattern="^mcp_")]
    type: Literal["mcp_call"]
    status: Literal["in_progress", "completed", "failed", "incomplete"]
    server_label: str
    name: str
    arguments: str
    output: str | None
    error: ResponseMcpError | None
    approval_request_id: None


OutputItem = Annotated[
    ResponseMessageItem | ResponseReasoningItem | ResponseFunctionCallItem | ResponseMcpCallItem,
    Discriminator("type"),
]


class ResponseErrorObject(AnswerModel):
    """What a response failed of."""

    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


class ResponseIncompleteDetails(AnswerModel):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens", "content_filter"]


class ResponseInputTokensDetails(AnswerModel):
    """What the prefix cache had, and was given up to a mark."""

    cached_tokens: Count
    cache_write_tokens: Count


class ResponseOutputTokensDetails(AnswerModel):
    """How much of the answer is reasoning."""

    reasoning_tokens: Count


class ResponseUsageObject(AnswerModel):
    """Token counts."""

    input_tokens: Count
    input_tokens_details: ResponseInputTokensDetails
    output_tokens: Count
    output_tokens_details: ResponseOutputTokensDetails
    total_tokens: Count


class ResponseReasoningEcho(AnswerModel):
    """What was asked about reasoning."""

    effort: str | None
    summary: str | None


class ResponseFunctionTool(AnswerModel):
    """A function, in the flat shape."""

    type: Literal["function"]
    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool


class ResponseMcpTool(AnswerModel):
    """An MCP server that the request brought along, without the keys for it."""

    type: Literal["mcp"]
    server_label: str
    server_url: str
    server_description: Any
    allowed_tools: list[str] | dict[str, Any] | None
    require_approval: Literal["never"]


class ResponseObject(AnswerModel):
    """A response. What was asked comes back; null means the model's own default."""

    id: Annotated[str, Field(pattern="^resp_")]
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: ResponseStatus
    background: bool
    error: ResponseErrorObject | None
    incomplete_details: ResponseIncompleteDetails | None
    model: str
    output: list[OutputItem]
    service_tier: Literal["default", "flex"]
    usage: ResponseUsageObject | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: Any
    metadata: dict[str, Any]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: Any
    reasoning: ResponseReasoningEcho
    safety_identifier: Any
    store: bool
    temperature: float | None
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[Annotated[ResponseFunctionTool | ResponseMcpTool, Discriminator("type")]]
    top_logprobs: Count
    top_p: float | None
    truncation: Literal["auto", "disabled"]
    user: Any


class ResponseInputTokens(AnswerModel):
    """The tokens of a prompt."""

    object: Literal["response.input_tokens"]
    input_tokens: Count


class _Event(AnswerModel):
    sequence_number: Count


class ResponseStateEvent(_Event):
    """The response, at its beginning and at its end."""

    type: Literal[
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: ResponseObject


class ResponseItemEvent(_Event):
    """An item begins, or is whole."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: Count
    item: OutputItem


class _ItemsEvent(_Event):
    item_id: str
    output_index: Count


class ResponsePartEvent(_ItemsEvent):
    """A part of an item begins, or is whole."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    content_index: Count
    part: Annotated[ResponseOutputText | ResponseReasoningText, Discriminator("type")]


class ResponseTextDeltaEvent(_ItemsEvent):
    """The next piece of the text."""

    type: Literal["response.output_text.delta"]
    content_index: Count
    delta: str
    logprobs: list[ResponseTokenLogprob]


class ResponseTextDoneEvent(_ItemsEvent):
    """The whole of a piece of text."""

    type: Literal["response.output_text.done"]
    content_index: Count
    text: str
    logprobs: list[ResponseTokenLogprob]


class ResponseReasoningDeltaEvent(_ItemsEvent):
    """The next piece of the reasoning."""

    type: Literal["response.reasoning_text.delta"]
    content_index: Count
    delta: str


class ResponseReasoningDoneEvent(_ItemsEvent):
    """The whole of a piece of reasoning."""

    type: Literal["response.reasoning_text.done"]
    content_index: Count
    text: str


class ResponseSummaryPartEvent(_ItemsEvent):
    """A summary begins, or is whole."""

    type: Literal["response.reasoning_summary_part.added", "response.reasoning_summary_part.done"]
    summary_index: Count
    part: ResponseSummaryText


class ResponseSummaryDeltaEvent(_ItemsEvent):
    """The next piece of a summary."""

    type: Literal["response.reasoning_summary_text.delta"]
    summary_index: Count
    delta: str


class ResponseSummaryDoneEvent(_ItemsEvent):
    """The whole of a summary."""

    type: Literal["response.reasoning_summary_text.done"]
    summary_index: Count
    text: str


class ResponseArgumentsDeltaEvent(_ItemsEvent):
    """The next piece of a call's arguments."""

    type: Literal["response.function_call_arguments.delta", "response.mcp_call_arguments.delta"]
    delta: str


class ResponseArgumentsDoneEvent(_ItemsEvent):
    """The whole of a call's arguments."""

    type: Literal["response.function_call_arguments.done"]
    name: str
    arguments: str


class ResponseMcpArgumentsDoneEvent(_ItemsEvent):
    """The whole of the arguments of a call that the service makes."""

    type: Literal["response.mcp_call_arguments.done"]
    arguments: str


class ResponseMcpCallEvent(_ItemsEvent):
    """The service makes a call, or has made it."""

    type: Literal[
        "response.mcp_call.in_progress",
        "response.mcp_call.completed",
        "response.mcp_call.failed",
    ]


EVENTS = (
    ResponseStateEvent,
    ResponseItemEvent,
    ResponsePartEvent,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
    ResponseReasoningDeltaEvent,
    ResponseReasoningDoneEvent,
    ResponseSummaryPartEvent,
    ResponseSummaryDeltaEvent,
    ResponseSummaryDoneEvent,
    ResponseArgumentsDeltaEvent,
    ResponseArgumentsDoneEvent,
    ResponseMcpArgumentsDoneEvent,
    ResponseMcpCallEvent,
)
