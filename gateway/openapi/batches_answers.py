"""What the routes of batches take and answer. Tests hold what is written against this."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from gateway.batches.anthropic.wire import MAX_ROWS as MAX_MESSAGE_ROWS
from gateway.batches.bodies import CUSTOM_ID
from gateway.batches.sference.wire import MAX_ROWS as MAX_INLINE_ROWS
from gateway.dialects.anthropic.wire import MessagesBody
from gateway.dialects.validation import Wire
from gateway.openapi.schemas import AnswerModel
from jobs.models import Batch as StoredBatch

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[int, Field(ge=0)]


class MessageBatchRequest(Wire):
    """One request of a batch."""

    custom_id: Annotated[str, Field(pattern=CUSTOM_ID.replace(r"\Z", "$"))]
    """What its result is found by; each is used once."""
    params: MessagesBody | Any
    """The body that `/v1/messages` would have. The batch is taken even if it is wrong: it ends as
    errored then."""


class MessageBatchBody(Wire):
    """A new batch."""

    requests: Annotated[list[MessageBatchRequest], Field(min_length=1, max_length=MAX_MESSAGE_ROWS)]


class InlineRequest(Wire):
    """One request of a batch."""

    model_config = ConfigDict(extra="forbid")

    body: dict[str, Any]
    """The body that `/v1/chat/completions` or `/v1/responses` would have; it is answered as the
    former is."""
    custom_id: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """What its result is found by; none is used twice."""


class InlineBatchBody(Wire):
    """A new batch, with its requests in it. All are for one model, and all must be right."""

    model_config = ConfigDict(extra="forbid")

    requests: Annotated[list[InlineRequest], Field(min_length=1, max_length=MAX_INLINE_ROWS)]
    window: Literal["24h"] = "24h"


class MessageBatchCounts(AnswerModel):
    """How many requests ended how. Until all have, every one is being processed."""

    processing: Count
    succeeded: Count
    errored: Count
    canceled: Count
    expired: Count


class MessageBatch(AnswerModel):
    """A batch of Messages requests."""

    id: Annotated[str, Field(pattern="^msgbatch_")]
    type: Literal["message_batch"]
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: MessageBatchCounts
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    cancel_initiated_at: datetime | None
    archived_at: datetime | None
    """Since when the results are gone."""
    results_url: str | None
    """The path of the results, once there are any."""


class MessageBatchList(AnswerModel):
    """A page of batches, newest first."""

    data: list[MessageBatch]
    has_more: bool
    first_id: str | None
    last_id: str | None


class DeletedMessageBatch(AnswerModel):
    """A batch that is no more."""

    id: str
    type: Literal["message_batch_deleted"]


class BatchError(AnswerModel):
    """What is wrong with the input file."""

    code: str | None
    line: int | None
    message: str | None
    param: str | None


class BatchErrors(AnswerModel):
    """All that is wrong with the input file, as far as it is told."""

    object: Literal["list"]
    data: list[BatchError]


class BatchRequestCounts(AnswerModel):
    """How many requests there are, and how many have ended with and without an answer."""

    total: Count
    completed: Count
    failed: Count


class BatchInputDetails(AnswerModel):
    """How much of the input the prefix cache had."""

    cached_tokens: Count


class BatchOutputDetails(AnswerModel):
    """How much of the output was reasoning."""

    reasoning_tokens: Count


class BatchUsage(AnswerModel):
    """The tokens of all requests."""

    input_tokens: Count
    input_tokens_details: BatchInputDetails
    output_tokens: Count
    output_tokens_details: BatchOutputDetails
    total_tokens: Count


class Batch(AnswerModel):
    """A batch of a file of requests. Times are in seconds of Unix time."""

    id: Annotated[str, Field(pattern="^batch_")]
    object: Literal["batch"]
    endpoint: str
    model: str | None
    errors: BatchErrors | None
    input_file_id: str | None
    completion_window: Literal["24h"]
    status: Annotated[str, Field(json_schema_extra={"enum": StoredBatch.Status.values})]
    output_file_id: str | None
    error_file_id: str | None
    created_at: Seconds
    in_progress_at: Seconds | None
    expires_at: Seconds
    finalizing_at: Seconds | None
    completed_at: Seconds | None
    failed_at: Seconds | None
    expired_at: Seconds | None
    cancelling_at: Seconds | None
    cancelled_at: Seconds | None
    request_counts: BatchRequestCounts
    usage: BatchUsage
    metadata: dict[str, str] | None
    cost_micros: int


class InlineBatch(AnswerModel):
    """A batch that came with its requests."""

    id: Annotated[str, Field(json_schema_extra={"format": "uuid"})]
    status: Literal["pending", "running", "completed", "failed", "cancelled"]
    window: Literal["24h"]
    request_count: Count
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None
    total_prompt_tokens: Count
    total_completion_tokens: Count
    total_tokens: Count
    total_cost_micros: int
    """In millionths of the currency."""


class BatchList(AnswerModel):
    """A page of the batches of files, and the newest of those that came with their requests."""

    object: Literal["list"]
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool
    items: list[InlineBatch]


class InlineResult(AnswerModel):
    """What became of one request."""

    custom_id: str | None
    status: Literal["completed", "failed", "cancelled"]
    result_json: dict[str, Any] | None
    """The completion."""
    error_json: dict[str, Any] | None
    """What went wrong: `message`, `type`, `param` and `code`."""


class InlineResults(AnswerModel):
    """What became of all requests; null until the batch has ended."""

    batch_id: str
    status: Literal["pending", "running", "completed", "failed", "cancelled"]
    output_url: str | None
    """The path of the same results as lines."""
    completed_at: datetime | None
    results: list[InlineResult] | None
