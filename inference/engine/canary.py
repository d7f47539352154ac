"""The canary: a known question with a known answer, asked before an engine may serve.

Some kernels answer fluent nonsense on some processors, without any error.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import aclosing

from inference.backends.port import Backend
from inference.catalogue import ModelEntry
from inference.errors import TandemError
from inference.fold import fold
from inference.request import GenerationRequest, Message, Role, Sampling, TextPart

_MAX_TOKENS = 32
# Generous, for the first answer of a big model can be slow; a hung engine must not load for ever.
_TIMEOUT_S = 120.0


async def ask_canary(backend: Backend, entry: ModelEntry) -> str:
    """Return the answer to the canary. Raises `TandemError`, or `TimeoutError` after 120 s."""
    request = GenerationRequest(
        id=str(uuid.uuid4()),
        model=entry.id,
        messages=(Message(role=Role.USER, parts=(TextPart(entry.canary_prompt),)),),
        sampling=Sampling(max_tokens=_MAX_TOKENS, temperature=0),
        deadline_s=time.time() + _TIMEOUT_S,
        # All of a short answer could go into thoughts.
        thinking=False,
    )
    async with asyncio.timeout(_TIMEOUT_S), aclosing(backend.generate(request)) as events:
        return (await fold(events)).text


async def run_canary(backend: Backend, entry: ModelEntry) -> str | None:
    """Return why the engine must not serve, or None. A model without a canary passes."""
    if not entry.canary_prompt:
        return None
    try:
        answer = await ask_canary(backend, entry)
    except TandemError as error:
        return f"canary failed: {error.message}"
    except TimeoutError:
        return f"canary failed: no answer within {_TIMEOUT_S:.0f} s"
    if entry.canary_expect in answer:
        return None
    return f'canary failed: expected "{entry.canary_expect}" in "{answer}"'
