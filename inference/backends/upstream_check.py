"""Whether upstreams, and the models that they run, can be used from this process."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from inference.backends.registry import build_backend
from inference.backends.upstream import UpstreamBackend
from inference.backends.upstream_http import UpstreamHttp
from inference.catalogue import ModelEntry
from inference.connections import PATIENCE_S, Finding
from inference.errors import ErrorCode, TandemError
from inference.request import GenerationRequest, Message, Role, Sampling, TextPart
from inference.upstreams import UpstreamEntry, read_secrets, url_fault

# Models that think refuse to be given only a few. The answer is left where it begins.
_MAX_TOKENS = 4096


async def check_model(entry: ModelEntry) -> float:
    """Have a model's upstream begin an answer; return how long that took, in seconds.

    Raises `TandemError` in words for the operator, also if there is no answer within `PATIENCE_S`.
    """
    backend = build_backend(entry, Path())
    assert isinstance(backend, UpstreamBackend)
    await backend.start()
    began_s = time.perf_counter()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await backend.try_once(_question(entry))
    except TimeoutError:
        raise _too_slow() from None
    finally:
        await backend.stop()
    return time.perf_counter() - began_s


async def check_upstream(upstream: UpstreamEntry, models: Sequence[ModelEntry]) -> list[Finding]:
    """Return what there is to say of an upstream: for each of its models, or of itself if it has
    none, since what API it speaks is the models' to say."""
    try:
        if fault := url_fault(upstream.base_url):
            return [Finding(False, f"Its address {fault}.")]
        read_secrets(upstream.key)
        if not models:
            return [await _reached(upstream)]
    except TandemError as error:
        return [Finding(False, _sentence(error.message))]
    return list(await asyncio.gather(*map(_asked, models)))


async def _asked(entry: ModelEntry) -> Finding:
    try:
        took_s = await check_model(entry)
    except TandemError as error:
        return Finding(False, f"{entry.id}: {error.message}")
    return Finding(True, f"{entry.id}: it begins to answer after {took_s:.1f} s.")


async def _reached(upstream: UpstreamEntry) -> Finding:
    """Tell whether anybody is there. The key is not sent: any answer will do."""
    http = UpstreamHttp(upstream)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await http.reach()
    except TimeoutError:
        raise _too_slow() from None
    finally:
        await http.close()
    text = "It can be reached, and its key is there. No model uses it yet: with one, it is asked."
    return Finding(True, text)


def _too_slow() -> TandemError:
    return TandemError(ErrorCode.TIMEOUT, f"the upstream does not answer within {PATIENCE_S:g} s")


def _question(entry: ModelEntry) -> GenerationRequest:
    return GenerationRequest(
        id=str(uuid.uuid4()),
        model=entry.id,
        messages=(Message(role=Role.USER, parts=(TextPart("Say hello."),)),),
        sampling=Sampling(max_tokens=max(1, min(_MAX_TOKENS, entry.context_tokens // 2))),
        deadline_s=time.time() + PATIENCE_S,
    )


def _sentence(message: str) -> str:
    return f"{message[:1].upper()}{message[1:]}."
