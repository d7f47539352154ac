"""From the Messages request to the canonical one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gateway.dialects.anthropic.blocks import Base64Source, ImageBlock, ToolResultBlock
from gateway.dialects.anthropic.connectors import requested_servers
from gateway.dialects.anthropic.history import places
from gateway.dialects.anthropic.tools import (
    ClientTool,
    FunctionTool,
    ToolChoiceBody,
    callable_tools,
    check_choice,
)
from gateway.dialects.anthropic.turns import conversation
from gateway.dialects.anthropic.wire import MessagesBody
from gateway.dialects.context import ParseContext
from gateway.dialects.functions import function_tool
from gateway.dialects.sampling import top_k
from gateway.dialects.validation import invalid
from gateway.image_source import ImageSource
from inference.request import (
    CacheMark,
    GenerationRequest,
    ImagePart,
    Message,
    Sampling,
    Tool,
    ToolChoice,
    ToolMode,
)

_MODES = {
    "auto": ToolMode.AUTO,
    "none": ToolMode.NONE,
    "any": ToolMode.ANY,
    "required": ToolMode.ANY,
    "tool": ToolMode.NAMED,
}


def image_sources(body: MessagesBody) -> list[ImageSource]:
    """Return where the body's images come from, in the order that `to_request` wants them."""
    return [_source(path, block) for path, block in _images(body)]


def to_request(
    body: MessagesBody, context: ParseContext, images: Sequence[ImagePart] = ()
) -> GenerationRequest:
    """Return the canonical request.

    For a model with vision, `images` are what `image_sources` named; without vision none are
    needed. Raises INVALID_REQUEST when the model may not be sent images at all, and for a choice
    of a tool that is not there; of a model with servers' tools only its engine knows which are.
    """
    if context.vision and len(images) != sum(1 for _ in _images(body)):
        raise ValueError("the images are not those that the body names")
    if body.tool_choice and not (context.server_tools or body.mcp_servers):
        check_choice(body.tools, body.tool_choice)
    if not context.vision and context.images_without_vision == "refuse":
        _refuse_images(body, context.model)
    messages, mark = conversation(
        body.system or (), body.messages, images if context.vision else None
    )
    tools = tuple(map(_tool, callable_tools(body.tools)))
    thinking = context.thinks(_thinking(body))
    return GenerationRequest(
        id=context.request_id,
        model=context.model,
        messages=messages,
        sampling=_sampling(body),
        deadline_s=context.deadline_s,
        lane=context.lane,
        owner=context.owner,
        cache_salt=context.cache_salt,
        cache_mark=_cache_mark(body, messages, mark),
        tools=tools,
        tool_choice=_tool_choice(body.tool_choice),
        thinking=thinking,
        thinking_budget_tokens=body.thinking.budget_tokens if thinking and body.thinking else None,
        servers=requested_servers(body.mcp_servers, body.tools),
        can_pause=True,
        output_schema=_output_schema(body),
    )


def _images(body: MessagesBody) -> Iterator[tuple[str, ImageBlock]]:
    for index, message in enumerate(body.messages):
        for path, block in places(message, index):
            if isinstance(block, ImageBlock):
                yield path, block
            elif isinstance(block, ToolResultBlock):
                for position, inner in enumerate(block.content or ()):
                    if isinstance(inner, ImageBlock):
                        yield f"{path}.content.{position}", inner


def _source(path: str, block: ImageBlock) -> ImageSource:
    source = block.source
    if isinstance(source, Base64Source):
        return ImageSource(path=f"{path}.source", media_type=source.media_type, data=source.data)
    return ImageSource(path=f"{path}.source", url=source.url)


def _refuse_images(body: MessagesBody, model: str) -> None:
    for path, _ in _images(body):
        raise invalid(f"{path}: model '{model}' has no vision; remove the image or use another")


def _sampling(body: MessagesBody) -> Sampling:
    return Sampling(
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=top_k(body.top_k),
        stop=tuple(body.stop_sequences or ()),
    )


def _tool(tool: ClientTool | FunctionTool) -> Tool:
    """Return the canonical tool. Examples go into the schema, where the model is shown them."""
    if isinstance(tool, FunctionTool):
        return function_tool(tool.function)
    examples = {"examples": tool.input_examples} if tool.input_examples else {}
    return Tool(
        name=tool.name,
        schema={"type": "object", **tool.input_schema, **examples},
        description=tool.description or "",
        strict=bool(tool.strict),
    )


def _tool_choice(choice: ToolChoiceBody | None) -> ToolChoice:
    if choice is None:
        return ToolChoice()
    return ToolChoice(
        mode=_MODES[choice.type],
        name=choice.name if choice.type == "tool" else None,
        parallel=not choice.disable_parallel_tool_use,
    )


def _thinking(body: MessagesBody) -> bool | None:
    """Return whether the caller wants the model to think; None for its default."""
    if body.enable_thinking is not None:
        return body.enable_thinking
    return body.thinking.wanted if body.thinking else None


def _output_schema(body: MessagesBody) -> dict[str, Any] | None:
    wanted = (body.output_config and body.output_config.format) or body.output_format
    return wanted.json_schema if wanted else None


def _cache_mark(
    body: MessagesBody, messages: Sequence[Message], mark: CacheMark | None
) -> CacheMark | None:
    """Return the last breakpoint in the prompt's order: tools, then system, then messages."""
    if body.cache_control:
        return CacheMark(message=len(messages) - 1, part=len(messages[-1].parts) - 1)
    if mark is None and any(tool.cache_control for tool in callable_tools(body.tools)):
        return CacheMark(message=-1, part=0)
    return mark
