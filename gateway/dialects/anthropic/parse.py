"""From the Messages request to the canonical one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from gateway.dialects.anthropic.wire import MAX_INT, MessagesBody, TextBlock
from inference.request import GenerationRequest, Message, Role, Sampling, TextPart

BILLING_HEADER = "x-anthropic-billing-header"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseContext:
    """What the body does not say. The fields mean what `GenerationRequest` says they mean."""

    request_id: str
    model: str
    deadline_s: float
    cache_salt: str | None = None


def to_request(body: MessagesBody, context: ParseContext) -> GenerationRequest:
    """Return the canonical request."""
    return GenerationRequest(
        id=context.request_id,
        model=context.model,
        messages=_alternating(_turns(body)),
        sampling=Sampling(
            max_tokens=body.max_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=_top_k(body.top_k),
            stop=tuple(body.stop_sequences or ()),
        ),
        deadline_s=context.deadline_s,
        cache_salt=context.cache_salt,
    )


def _turns(body: MessagesBody) -> Iterator[Message]:
    if system := _system_text(body.system or ()):
        yield Message(role=Role.SYSTEM, parts=(TextPart(system),))
    for message in body.messages:
        parts = tuple(TextPart(block.text) for block in message.content)
        yield Message(role=Role(message.role), parts=parts)


def _system_text(blocks: Iterable[TextBlock]) -> str:
    """Join the entries by line: they are written apart and rarely end in a line break."""
    texts = (_without_billing_header(block.text) for block in blocks)
    return "\n".join(text for text in texts if text)


def _without_billing_header(text: str) -> str:
    """Drop the client's attribution line: it differs per request and so defeats prefix caches."""
    return text.partition("\n")[2] if text.startswith(BILLING_HEADER) else text


def _alternating(turns: Iterable[Message]) -> tuple[Message, ...]:
    """Merge neighbours of one role into one turn, as the API promises and templates need."""
    return tuple(
        Message(role=role, parts=tuple(part for turn in group for part in turn.parts))
        for role, group in groupby(turns, key=lambda turn: turn.role)
    )


def _top_k(value: int | None) -> int | None:
    """Say "no limit" as a limit beyond any vocabulary: None would be the model's own default."""
    return MAX_INT if value is not None and value < 1 else value
