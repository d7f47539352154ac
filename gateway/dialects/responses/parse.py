"""From the Responses request to the canonical one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.dialects.context import ParseContext
from gateway.dialects.responses.history import (
    ResponsesItemReference,
    check_history,
    check_references,
    images_of,
    read_items,
)
from gateway.dialects.responses.items import Item
from gateway.dialects.responses.tools import (
    canonical_choice,
    canonical_tools,
    check_choice,
    mcp_servers,
    requested_servers,
)
from gateway.dialects.responses.turns import conversation
from gateway.dialects.responses.wire import ResponsesBody, ResponsesJsonSchema
from gateway.dialects.sampling import top_k
from gateway.dialects.validation import invalid_at
from gateway.image_source import ImageSource
from inference.request import GenerationRequest, ImagePart, Role, Sampling


def references(body: ResponsesBody) -> list[str]:
    """Return the ids of the items that the body only refers to."""
    return [item.id for item in body.input or () if isinstance(item, ResponsesItemReference)]


def put_in(obj: Mapping[str, Any], found: Mapping[str, Item]) -> dict[str, Any]:
    """Return a valid body as it was sent, with those items in it that were found for references."""
    return {**obj, "input": [found.get(item.get("id"), item) for item in obj["input"]]}


def image_sources(body: ResponsesBody, history_items: Sequence[Item] = ()) -> list[ImageSource]:
    """Return where the images come from, in the order that `to_request` wants them."""
    earlier, given = read_items(history_items), body.input or []
    return [ImageSource(path=path, url=part.image_url) for path, part in images_of(earlier, given)]


def to_request(
    body: ResponsesBody,
    context: ParseContext,
    images: Sequence[ImagePart] = (),
    history_items: Sequence[Item] = (),
) -> GenerationRequest:
    """Return the canonical request.

    `history_items` are the input and output items of the responses before this one, oldest first.
    For a model with vision, `images` are what `image_sources` named; without vision none are
    needed. Raises INVALID_REQUEST where items do not fit together, when the model may not be sent
    images at all, and for a choice of a tool that is not there.
    """
    brings_servers = any(mcp_servers(body.tools))
    check_choice(body.tools, body.tool_choice, server_tools=context.server_tools or brings_servers)
    earlier, given = read_items(history_items), body.input or []
    check_references(given)
    check_history(earlier, given)
    places = [path for path, _ in images_of(earlier, given)]
    if context.vision and len(images) != len(places):
        raise ValueError("the images are not those that the body names")
    if places and not context.vision and context.images_without_vision == "refuse":
        raise invalid_at(
            places[0], f"model '{context.model}' has no vision; remove the image or use another"
        )
    messages = conversation(
        body.instructions, [*earlier, *given], images if context.vision else None
    )
    if not any(message.role is not Role.SYSTEM for message in messages):
        raise invalid_at("input", "at least one message of a user is required")
    return GenerationRequest(
        id=context.request_id,
        model=context.model,
        messages=messages,
        sampling=_sampling(body, context),
        deadline_s=context.deadline_s,
        lane=context.lane,
        owner=context.owner,
        cache_salt=context.cache_salt,
        tools=canonical_tools(body.tools, body.tool_choice),
        tool_choice=canonical_choice(
            body.tool_choice, parallel=body.parallel_tool_calls is not False
        ),
        thinking=context.thinks(_thinking(body)),
        servers=requested_servers(body.tools, body.tool_choice),
        output_schema=_output_schema(body),
    )


def _sampling(body: ResponsesBody, context: ParseContext) -> Sampling:
    return Sampling(
        max_tokens=body.max_output_tokens or context.context_tokens,
        cut_to_context=body.max_output_tokens is None,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=top_k(body.top_k),
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        seed=body.seed,
        logprobs=(body.top_logprobs or 0) if body.wants_logprobs else None,
    )


def _thinking(body: ResponsesBody) -> bool | None:
    """Return whether the caller wants the model to think; None for its default."""
    if body.enable_thinking is not None:
        return body.enable_thinking
    effort = body.reasoning and body.reasoning.effort
    return None if effort is None else effort != "none"


def _output_schema(body: ResponsesBody) -> dict[str, Any] | None:
    wanted = body.text and body.text.format
    if isinstance(wanted, ResponsesJsonSchema):
        return wanted.json_schema
    return {"type": "object"} if wanted and wanted.type == "json_object" else None
