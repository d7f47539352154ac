"""Another model in the place of one that cannot answer: when, which, and to which requests."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from gateway.accounting.desk import Visit
from gateway.accounting.limiter import estimate_tokens
from gateway.dialects.placeholder import REMINDER
from gateway.keys import Principal
from gateway.serving.served import Served
from inference.catalogue import Catalogue, ModelEntry
from inference.errors import ErrorCode
from inference.events import Failed
from inference.request import GenerationRequest, Lane
from inference.transport.run import MAX_ATTEMPTS

HEADER = b"tandem-fallback"
"""Names the model that has answered, where it is not the one that was asked for."""

STREAM_WAIT_S = 45.0
"""How long a stream is not begun for a fallback's sake: proxies cut off a minute of silence."""

Reread = Callable[[ModelEntry], Awaitable[Sequence[Visit]]]
"""Reads a request once more, as if it had named this model. Raises `TandemError`."""

# Before a queue, and after it. What is wrong with the request is wrong elsewhere too.
_REFUSALS = frozenset({ErrorCode.NO_ENGINE, ErrorCode.OVERLOADED})
_FAILURES = _REFUSALS | {
    ErrorCode.UNAVAILABLE,
    ErrorCode.TIMEOUT,
    ErrorCode.RESOURCE_UNAVAILABLE,
    ErrorCode.ENGINE_LOST,
}


def find_fallback(
    catalogue: Catalogue, principal: Principal, entry: ModelEntry
) -> ModelEntry | None:
    """Return the model that may answer this caller in the entry's place, if there is one."""
    if not entry.fallback:
        return None
    found = catalogue.find(entry.fallback)
    # A name that is no enabled model's may be another one's alias.
    if found is None or found.id != entry.fallback or not principal.may_use(found.id):
        return None
    return found


def is_stranded(served: Served) -> bool:
    """Whether a request has got nothing of an answer for a reason that lies with its model.

    A request under which engines die again and again is not tried on others as well. In the flex
    lane, to find no room is what was paid less for.
    """
    prompt, run = served.visit.prompt, served.run
    if prompt.deadline_s <= time.time():
        return False
    if run is None:
        return served.error is not None and served.error.code in _REFUSALS
    if run.text_sent or not isinstance(run.end, Failed) or run.attempt + 1 >= MAX_ATTEMPTS:
        return False
    if prompt.lane is Lane.FLEX and run.end.code is ErrorCode.RESOURCE_UNAVAILABLE:
        return False
    return run.end.code in _FAILURES


def covers(entry: ModelEntry, again: Visit) -> bool:
    """Whether the fallback, which `again` is for, can do what the request asks of the entry.

    How long the prompt is can only be estimated.
    """
    other, prompt = again.entry, again.prompt
    if entry.vision and _is_blind(prompt):
        return False
    if prompt.tools and entry.calls_tools and not other.calls_tools:
        return False
    longest = 0 if prompt.sampling.cut_to_context else prompt.sampling.max_tokens
    longest += estimate_tokens(len(again.asked.body), entry.context_tokens)
    return other.context_tokens >= entry.context_tokens or longest <= other.context_tokens


def handed_over(served: Served, again: Visit) -> Visit:
    """Return the visit of the same request to its fallback: it has its id, and no more time."""
    before = served.visit.prompt
    prompt = msgspec.structs.replace(again.prompt, id=before.id, deadline_s=before.deadline_s)
    return again._replace(prompt=prompt)


def _is_blind(prompt: GenerationRequest) -> bool:
    """Whether images were left out of the prompt."""
    return any(part is REMINDER for message in prompt.messages for part in message.parts)
