"""vLLM in this process: the engine that serves real models.

vLLM is imported when an engine starts and not before, so that importing this module is cheap.
"""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
import os
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from inference.backends.port import BackendStats, Tally
from inference.backends.vllm_chat import enforced_schemas, must_call
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, FinishReason, Started, Usage
from inference.request import GenerationRequest, Message, Role, Sampling, TextPart

if TYPE_CHECKING:
    from inference.backends.vllm_answers import Answer
    from inference.backends.vllm_runtime import Runtime

logger = logging.getLogger(__name__)

# Read by vLLM and its libraries while they are imported.
_ENVIRONMENT = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    # How many are allowed is the dialects' matter; the engine takes any number.
    "VLLM_MAX_STOP_STRINGS": "1000000",
}

_WARM_UPS = 2
_WARM_UP_TOKENS = 4

_IDLE = BackendStats(running=0, waiting=0, kv_use=0.0, progress=0)


class VllmBackend:
    """One vLLM engine. Its processes are children of this one."""

    def __init__(self, entry: ModelEntry, models_dir: Path) -> None:
        self.capacity = entry.capacity
        self._entry = entry
        self._models_dir = models_dir
        self._runtime: Runtime | None = None

    async def start(self) -> None:
        """Load the model. Raises `TandemError` (ENGINE_FAILED) saying why it cannot serve."""
        folder = self._models_dir / self._entry.weights
        if not self._entry.weights or not folder.is_dir():
            raise TandemError(ErrorCode.ENGINE_FAILED, f"there is no weights folder {folder}")
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            self._runtime = await _load(self._entry, self._models_dir)
            await self._runtime.prepare()
            await self._warm_up()
        except TandemError:
            raise
        except Exception as error:  # whatever vLLM raises, the host is told why
            logger.exception("vLLM could not load %s", self._entry.id)
            await self.stop()
            raise TandemError(
                ErrorCode.ENGINE_FAILED,
                f"vLLM could not load {self._entry.id}, its log says more: {error}",
            ) from None

    async def _warm_up(self) -> None:
        """Have the first answers behind it, which take longest, and learn how long others do."""
        for number in range(_WARM_UPS):
            message = Message(role=Role.USER, parts=(TextPart(f"Warm-up {number}."),))
            request = GenerationRequest(
                id=str(uuid.uuid4()),
                model=self._entry.id,
                messages=(message,),
                sampling=Sampling(max_tokens=_WARM_UP_TOKENS, cut_to_context=True),
                deadline_s=math.inf,
            )
            async with aclosing(self.generate(request)) as events:
                async for _ in events:
                    pass

    async def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        """Run one request, as the port says."""
        runtime = self._runtime
        if runtime is None:
            yield Failed(code=ErrorCode.ENGINE_FAILED, message="the engine is not running")
            return
        try:
            with _explained(runtime, request):
                async with aclosing(_run(runtime, request, tally or Tally())) as events:
                    async for event in events:
                        yield event
        except TandemError as error:
            yield Failed(code=error.code, message=error.message)

    async def count(self, request: GenerationRequest) -> int:
        """Count the prompt's tokens, as the port says."""
        runtime = self._runtime
        if runtime is None:
            raise TandemError(ErrorCode.ENGINE_FAILED, "the engine is not running")
        with _explained(runtime, request):
            return await runtime.prompts.count(request)

    def stats(self) -> BackendStats:
        """The engine's load as its scheduler sees it."""
        runtime = self._runtime
        return runtime.stats() if runtime is not None else _IDLE

    def failure(self) -> str | None:
        """Why the engine can no longer serve, or None."""
        if self._runtime is not None and self._runtime.dead:
            return "the engine's process died"
        return None

    async def stop(self) -> None:
        """End the engine's processes. What still runs ends with `Failed`."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.release()
            await asyncio.to_thread(runtime.shutdown)


async def _load(entry: ModelEntry, models_dir: Path) -> Runtime:
    """Start the engine's processes in a thread, for it takes long and blocks."""
    others = set(multiprocessing.active_children())
    loading = asyncio.ensure_future(asyncio.to_thread(_load_blocking, entry, models_dir))
    try:
        return await asyncio.shield(loading)
    except asyncio.CancelledError:
        # A thread cannot be cancelled, but it gives up at once when its processes die.
        while not loading.done():
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
            await asyncio.wait([loading], timeout=0.1)
        if loading.exception() is None:
            await asyncio.to_thread(loading.result().shutdown)
        raise


def _load_blocking(entry: ModelEntry, models_dir: Path) -> Runtime:
    from inference.backends.vllm_runtime import Runtime

    return Runtime(entry, models_dir)


@contextmanager
def _explained(runtime: Runtime, request: GenerationRequest) -> Iterator[None]:
    """Turn whatever vLLM raises into a `TandemError`."""
    try:
        yield
    except TandemError:
        raise
    except Exception as error:  # noqa: BLE001 - the port lets nothing else out
        raise runtime.explained(request, error) from None


async def _run(runtime: Runtime, request: GenerationRequest, tally: Tally) -> AsyncGenerator[Event]:
    """Run one request. Raises whatever vLLM does."""
    prompt = await runtime.prompts.render(request)
    tally.prompt_tokens = len(prompt.token_ids)
    answer = prompt.answer
    yield Started(prompt_tokens=tally.prompt_tokens)
    # Known at the end is soon enough: the first token does not wait for it.
    marking = asyncio.ensure_future(runtime.prompts.marked_tokens(request, prompt.token_ids))
    # Without an answer the engine puts out one token all the same, and nobody asked for it.
    answering = request.sampling.max_tokens > 0
    try:
        async with aclosing(runtime.outputs(prompt, request)) as outputs:
            async for output in outputs:
                completion = output.outputs[0]
                tally.cached_tokens = output.num_cached_tokens or 0
                tally.output_tokens += len(completion.token_ids) if answering else 0
                for event in answer.read(completion):
                    yield event
                if answer.full:
                    break
        is_cut = answer.is_cut()
        for event in answer.end():
            yield event
        usage = msgspec.structs.replace(
            tally.usage,
            cache_written_tokens=max(0, await marking - tally.cached_tokens),
            thinking_tokens=answer.thinking_tokens,
        )
        yield _ending(completion, usage, request, answer, is_cut=is_cut)
    finally:
        marking.cancel()


def _ending(
    completion: Any, usage: Usage, request: GenerationRequest, answer: Answer, *, is_cut: bool
) -> Finished | Failed:
    has_called = answer.called and not is_cut
    # No reason: what was wanted had come, and the rest was broken off.
    match completion.finish_reason or "stop", completion.stop_reason:
        case "length", _:
            return Finished(reason=FinishReason.LENGTH, usage=usage)
        case "stop", _ if has_called:
            return Finished(reason=FinishReason.TOOL_USE, usage=usage)
        case "stop", str(text):
            return Finished(reason=FinishReason.STOP_SEQUENCE, usage=usage, stop_sequence=text)
        case "stop", _ if must_call(request) and not answer.called:
            message = "the model called no tool, although it was told to"
            return Failed(code=ErrorCode.ENGINE_FAILED, message=message)
        case "error", _ if not usage.output_tokens and any(enforced_schemas(request)):
            message = "the schema that the answer must match cannot be compiled"
            return Failed(code=ErrorCode.INVALID_REQUEST, message=message)
        case "stop", _:
            reason = FinishReason.TOOL_USE if answer.called else FinishReason.END
            return Finished(reason=reason, usage=usage)
    logger.error("vLLM ended a request with %r", completion.finish_reason)
    return Failed(code=ErrorCode.INTERNAL, message="the engine could not finish this request")
