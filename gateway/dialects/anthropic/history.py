"""What must hold between the blocks of a conversation, beyond the shape of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from gateway.dialects.anthropic.blocks import (
    InputMessage,
    McpToolResultBlock,
    McpToolUseBlock,
    MessageBlock,
    RedactedThinkingBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from gateway.dialects.validation import invalid

Place = tuple[str, MessageBlock]

# Blocks that only one role may send. Text is anybody's.
_ROLES = {
    "image": "user",
    "tool_result": "user",
    "tool_use": "assistant",
    "mcp_tool_use": "assistant",
    "mcp_tool_result": "assistant",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
}


def places(message: InputMessage, index: int) -> Iterator[Place]:
    """Yield a message's blocks with their paths."""
    for position, block in enumerate(message.content):
        yield f"messages.{index}.content.{position}", block


def check_history(messages: Sequence[InputMessage], tool_names: Collection[str]) -> None:
    """Raise INVALID_REQUEST, by path and id, where blocks do not fit together.

    Thinking may stand anywhere in an assistant turn: open models interleave it with calls.
    """
    _check_emptiness(messages)
    for index, message in enumerate(messages):
        for path, block in places(message, index):
            _check_role(path, block, message.role)
            if isinstance(block, ToolResultBlock):
                _check_references(path, block, tool_names)
    _check_calls(messages)


def _check_emptiness(messages: Sequence[InputMessage]) -> None:
    for index, message in enumerate(messages):
        last = index == len(messages) - 1
        # The last turn may be one that the assistant has yet to begin.
        if not message.content and not (last and message.role == "assistant"):
            raise invalid(f"messages.{index}.content: message content must be non-empty")
    if all(_is_silent(block) for message in messages for block in message.content):
        raise invalid("messages: at least one message is required")


def _is_silent(block: MessageBlock) -> bool:
    """Tell whether a block has nothing for the model."""
    if isinstance(block, ThinkingBlock):
        return not block.thinking
    return isinstance(block, RedactedThinkingBlock)


def _check_role(path: str, block: MessageBlock, role: str) -> None:
    wanted = _ROLES.get(block.type, role)
    if role != wanted:
        raise invalid(f"{path}: `{block.type}` blocks can only be in `{wanted}` messages")


def _check_references(path: str, result: ToolResultBlock, tool_names: Collection[str]) -> None:
    for position, block in enumerate(result.content or ()):
        if isinstance(block, ToolReferenceBlock) and block.tool_name not in tool_names:
            raise invalid(
                f"{path}.content.{position}.tool_name: Tool reference '{block.tool_name}' not "
                "found in provided tools"
            )


def _check_calls(messages: Sequence[InputMessage]) -> None:
    """Hold every call against the results of the next user turn, and the other way round.

    Neighbours of one role are one turn, and system messages do not come between turns.
    """
    spoken = [
        (index, message) for index, message in enumerate(messages) if message.role != "system"
    ]
    every_id: set[str] = set()
    waiting: dict[str, str] = {}
    left: dict[str, str] = {}
    for role, turn in groupby(spoken, key=lambda item: item[1].role):
        blocks = [place for index, message in turn for place in places(message, index)]
        # Only the last turn may leave calls to the server.
        _check_run(left)
        if role == "assistant":
            waiting = _calls(blocks, every_id)
            left = _server_calls(blocks, every_id)
        else:
            _check_results(blocks, waiting)
            waiting = {}
    _check_answered(waiting)


def _calls(blocks: Sequence[Place], every_id: set[str]) -> dict[str, str]:
    """Return the path of each call by its id."""
    calls = {}
    for path, block in blocks:
        if isinstance(block, ToolUseBlock):
            if block.id in every_id:
                raise invalid(f"{path}.id: `tool_use` ids must be unique: {block.id}")
            every_id.add(block.id)
            calls[block.id] = path
    return calls


def _server_calls(blocks: Sequence[Place], every_id: set[str]) -> dict[str, str]:
    """Return the paths of the server's calls that have no result yet, by their ids."""
    calls: dict[str, str] = {}
    for path, block in blocks:
        match block:
            case McpToolUseBlock(id=call_id):
                if call_id in every_id:
                    raise invalid(f"{path}.id: `mcp_tool_use` ids must be unique: {call_id}")
                every_id.add(call_id)
                calls[call_id] = path
            case McpToolResultBlock(tool_use_id=call_id):
                if calls.pop(call_id, None) is None:
                    raise invalid(
                        f"{path}.tool_use_id: unexpected `tool_use_id` found in `mcp_tool_result` "
                        f"blocks: {call_id}. Each `mcp_tool_result` block must follow its "
                        "`mcp_tool_use` block in the same turn."
                    )
    return calls


def _check_run(left: dict[str, str]) -> None:
    for call_id, path in left.items():
        raise invalid(
            f"{path}: `mcp_tool_use` ids were found without `mcp_tool_result` blocks after them: "
            f"{call_id}. Only the last turn of a conversation may end so."
        )


def _check_results(blocks: Sequence[Place], calls: dict[str, str]) -> None:
    waiting = dict(calls)
    for path, block in blocks:
        if not isinstance(block, ToolResultBlock):
            continue
        called = block.tool_use_id
        if called not in calls:
            raise invalid(
                f"{path}.tool_use_id: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{called}. Each `tool_result` block must have a corresponding `tool_use` block "
                "in the previous message."
            )
        if waiting.pop(called, None) is None:
            raise invalid(
                f"{path}.tool_use_id: each `tool_use` must have a single result. Found multiple "
                f"`tool_result` blocks with id: {called}"
            )
    _check_answered(waiting)


def _check_answered(waiting: dict[str, str]) -> None:
    if waiting:
        raise invalid(
            f"{next(iter(waiting.values()))}: `tool_use` ids were found without `tool_result` "
            f"blocks immediately after: {', '.join(waiting)}. Each `tool_use` block must have a "
            "corresponding `tool_result` block in the next message."
        )
