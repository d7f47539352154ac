"""The part of a request that its cache mark stands behind."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from inference.request import GenerationRequest, Message, Role, TextPart

# Templates want a conversation that the user has the last word in.
_NEXT = Message(role=Role.USER, parts=(TextPart("?"),))


def marked_prefix(request: GenerationRequest) -> GenerationRequest | None:
    """Return the request cut off after what it marks, or None if it marks nothing.

    Its prompt begins like that of the whole request, and ends otherwise where that goes on.
    """
    mark = request.cache_mark
    if mark is None:
        return None
    messages = request.messages[: mark.message + 1]
    if messages:
        last = messages[-1]
        cut = msgspec.structs.replace(last, parts=last.parts[: mark.part + 1])
        messages = (*messages[:-1], cut)
    if not messages or messages[-1].role is not Role.USER:
        messages = (*messages, _NEXT)
    return msgspec.structs.replace(request, messages=messages, cache_mark=None)


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """Return how many tokens two prompts have in common at their beginning."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))
