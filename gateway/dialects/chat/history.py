"""What must hold between the messages of a conversation, beyond the shape of each."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.dialects.chat.messages import AssistantMessage, ChatMessage, ToolMessage
from gateway.dialects.validation import invalid_at


def check_history(messages: Sequence[ChatMessage]) -> None:
    """Raise INVALID_REQUEST unless every call has its result right after it, and the other way.

    The words are OpenAI's: clients match them.
    """
    waiting: dict[str, None] = {}
    asked = 0
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                raise invalid_at(
                    f"messages[{index}].tool_call_id",
                    "messages with role 'tool' must be a response to a preceeding message with "
                    f"'tool_calls', and none of them waits for '{message.tool_call_id}'",
                )
            del waiting[message.tool_call_id]
            continue
        _check_answered(waiting, asked)
        if isinstance(message, AssistantMessage):
            waiting, asked = {call.id: None for call in message.tool_calls or ()}, index
    _check_answered(waiting, asked)


def _check_answered(waiting: dict[str, None], asked: int) -> None:
    if waiting:
        raise invalid_at(
            f"messages[{asked}].tool_calls",
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(waiting),
        )
