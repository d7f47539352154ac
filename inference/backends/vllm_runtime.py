"""Everything that touches vLLM's own classes. Imported only by a backend that is starting.

vLLM does here what it does in its own API server (chat templates, tokenizing, sampling defaults),
but its outputs are read straight from the engine: no server-sent events in between.
"""

from __future__ import annotations

import gc
import logging
from argparse import Namespace
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from starlette.datastructures import State
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.exceptions import VLLMClientError
from vllm.outputs import RequestOutput
from vllm.platforms import current_platform
from vllm.sampling_params import SamplingParams
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.loggers import StatLoggerBase

from inference.backends.limits import check_lengths
from inference.backends.port import BackendStats
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Failed
from inference.request import GenerationRequest, Lane, Message

logger = logging.getLogger(__name__)

# vLLM serves the lower number first.
_PRIORITY = {Lane.REALTIME: 0, Lane.FLEX: 1, Lane.BACKGROUND: 2, Lane.BATCH: 3}

# vLLM's own default on a CPU is nearly all of the machine's memory.
_CPU_KV_CACHE_GIB = 4

# How much of a hopelessly long prompt is tokenized to tell how long it is.
_SAMPLE_CHARS = 100_000


class _Scheduler(StatLoggerBase):  # type: ignore[misc]
    """The scheduler's own numbers, as of its last step."""

    def __init__(self) -> None:
        self.running = 0
        self.kv_use = 0.0
        self.steps = 0

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        """Take the numbers of one engine step."""
        if scheduler_stats is not None:
            self.running = scheduler_stats.num_running_reqs
            self.kv_use = scheduler_stats.kv_cache_usage
            self.steps += 1

    def log_engine_initialized(self) -> None:
        """Nothing to say: the backend's host reports that the engine is up."""


class _ChatRequest(ChatCompletionRequest):  # type: ignore[misc]
    """A chat request without vLLM's length checks: ours count exactly and use other words."""

    def build_tok_params(self, model_config: Any) -> Any:
        return replace(super().build_tok_params(model_config), max_total_tokens=None)


class Prompt:
    """A request that is tokenized and ready for the engine."""

    def __init__(self, engine_input: Any, sampling: SamplingParams, tokens: int) -> None:
        self.engine_input = engine_input
        self.sampling = sampling
        self.tokens = tokens


def engine_arguments(entry: ModelEntry, models_dir: Path) -> Namespace:
    """Return the API server's arguments for this model. Raises `TandemError` on unknown ones.

    `engine_options` may name any argument of vLLM's server with underscores, and `kv_cache_gib`.
    """
    args: Namespace = make_arg_parser(FlexibleArgumentParser()).parse_args([])
    options = dict(entry.engine_options)
    cache_gib = options.pop("kv_cache_gib", None)
    if current_platform.is_cpu():
        # The bfloat16 attention kernel answers nonsense on some CPUs, without an error.
        options.setdefault("dtype", "float32")
        # Compiling adds a minute to every start, and gains nothing once several answers run.
        options.setdefault("enforce_eager", True)
        cache_gib = cache_gib or _CPU_KV_CACHE_GIB
    if cache_gib:
        options.setdefault("kv_cache_memory_bytes", int(cache_gib * 2**30))
    options["max_num_seqs"] = max(entry.capacity, options.get("max_num_seqs", 0))
    options |= {
        "model": str(models_dir / entry.weights),
        "served_model_name": [entry.id],
        "max_model_len": entry.context_tokens,
        "enable_prefix_caching": True,
        "scheduling_policy": "priority",
        "disable_log_stats": True,
    }
    if unknown := sorted(options.keys() - vars(args).keys()):
        raise TandemError(
            ErrorCode.ENGINE_FAILED,
            f"unknown engine options of {entry.id}: {', '.join(unknown)}",
        )
    vars(args).update(options)
    return args


class Runtime:
    """A running vLLM engine with its API server's request handling."""

    def __init__(self, args: Namespace) -> None:
        """Start the engine's processes. Blocks for many seconds: call it in a thread."""
        scheduler = self._scheduler = _Scheduler()
        self._chat: Any = None
        self._args = args
        self._engine = AsyncLLM.from_engine_args(
            AsyncEngineArgs.from_cli_args(args),
            stat_loggers=[lambda config, index: scheduler],
        )
        self._context_tokens: int = args.max_model_len
        self._numbers = count()

    async def prepare(self) -> None:
        """Build the request handling on the loop that will use it."""
        state = State()
        tasks = await self._engine.get_supported_tasks()
        await init_app_state(self._engine, state, self._args, tasks)
        self._chat = state.openai_serving_chat

    @property
    def dead(self) -> bool:
        """Whether the engine's processes are gone."""
        return bool(self._engine.errored)

    def stats(self) -> BackendStats:
        """The scheduler's numbers, and what it was given since but has not started yet."""
        unfinished = self._engine.get_num_unfinished_requests()
        return BackendStats(
            running=self._scheduler.running,
            waiting=max(0, unfinished - self._scheduler.running),
            kv_use=self._scheduler.kv_use,
            progress=self._scheduler.steps,
        )

    async def render(self, request: GenerationRequest) -> Prompt:
        """Apply the chat template and tokenize. Raises `TandemError` on a bad request."""
        self._refuse_hopeless(request)
        sampling = request.sampling
        chat = _ChatRequest(
            messages=[_message(message) for message in request.messages],
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            stop=list(sampling.stop),
            cache_salt=request.cache_salt,
            stream=True,
        )
        rendered = await self._chat.render_chat_request(chat)
        if isinstance(rendered, ErrorResponse):
            raise TandemError(ErrorCode.INVALID_REQUEST, rendered.error.message)
        _, (engine_input,) = rendered
        tokens = len(engine_input["prompt_token_ids"])
        check_lengths(
            prompt_tokens=tokens,
            max_tokens=sampling.max_tokens,
            context_tokens=self._context_tokens,
        )
        params = chat.to_sampling_params(sampling.max_tokens, self._chat.default_sampling_params)
        return Prompt(engine_input, params, tokens)

    def outputs(self, prompt: Prompt, request: GenerationRequest) -> AsyncGenerator[RequestOutput]:
        """Run a prompt and yield what the engine makes of it. Closing aborts it at once."""
        # An attempt may follow on an aborted one: the id alone would not tell them apart.
        request_id = f"{request.id}-{next(self._numbers)}"
        outputs: AsyncGenerator[RequestOutput] = self._engine.generate(
            prompt.engine_input,
            prompt.sampling,
            request_id,
            priority=_PRIORITY[request.lane],
        )
        return outputs

    def failed(self, request: GenerationRequest, error: Exception) -> Failed:
        """Return the event for what vLLM raised. Only a bad request's own words are shown."""
        if isinstance(error, VLLMClientError):
            return Failed(code=ErrorCode.INVALID_REQUEST, message=str(error))
        if isinstance(error, EngineDeadError):
            return Failed(code=ErrorCode.ENGINE_FAILED, message="the engine stopped working")
        logger.error("vLLM failed on request %s", request.id, exc_info=error)
        return Failed(code=ErrorCode.INTERNAL, message="the engine could not run this request")

    def release(self) -> None:
        """Let go of the loop and of the requests that still run, which end with an error."""
        self._engine.output_processor.propagate_error(EngineDeadError())
        # It would take the end of the processes for a crash and log it as one.
        if self._engine.output_handler is not None:
            self._engine.output_handler.cancel()

    def shutdown(self) -> None:
        """End the engine's processes. Blocks for up to some seconds: call it in a thread."""
        self._engine.shutdown()
        # vLLM's objects refer to each other; freed while Python exits, they complain.
        del self._engine, self._chat
        gc.collect()

    def _refuse_hopeless(self, request: GenerationRequest) -> None:
        """Refuse a prompt that cannot fit whatever its tokens, at a price that does not grow.

        Tokenizing tens of megabytes would hold a core for as long as it takes. The count in the
        message is then an estimate from the beginning of the prompt.
        """
        tokenizer = self._chat.renderer.tokenizer
        text = [part.text for message in request.messages for part in message.parts]
        chars = sum(map(len, text))
        if chars <= self._context_tokens * tokenizer.max_chars_per_token:
            return
        sample = "".join(text)[:_SAMPLE_CHARS]
        tokens = len(tokenizer.encode(sample, add_special_tokens=False)) * chars // len(sample)
        check_lengths(
            prompt_tokens=max(tokens, self._context_tokens + 1),
            max_tokens=request.sampling.max_tokens,
            context_tokens=self._context_tokens,
        )


def _message(message: Message) -> dict[str, Any]:
    texts = [part.text for part in message.parts]
    content = texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]
    return {"role": message.role.value, "content": content}
