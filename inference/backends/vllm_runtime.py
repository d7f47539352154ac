"""Everything that touches vLLM's own classes. Imported only by a backend that is starting.

vLLM does here what it does in its own API server (chat templates, tokenizing, sampling defaults),
but its outputs are read straight from the engine: no server-sent events in between.
"""

from __future__ import annotations

import gc
import logging
from argparse import Namespace
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from starlette.datastructures import State
from vllm.config import StructuredOutputsConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.exceptions import VLLMClientError
from vllm.outputs import RequestOutput
from vllm.platforms import current_platform
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.loggers import StatLoggerBase

from inference.backends.described_tools import require_format
from inference.backends.port import BackendStats
from inference.backends.priorities import PRIORITY
from inference.backends.vllm_offload import offload_arguments
from inference.backends.vllm_prompts import Prompt, Prompts
from inference.backends.vllm_scheduler import PACE, paced_scheduler
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.pace import Targets
from inference.pace_stats import PaceStats
from inference.request import GenerationRequest

logger = logging.getLogger(__name__)

# vLLM's own default on a CPU is nearly all of the machine's memory.
_CPU_KV_CACHE_GIB = 4

# As many as Anthropic allows.
_MAX_IMAGES = 100


class _Scheduler(StatLoggerBase):  # type: ignore[misc]
    """The scheduler's own numbers, as of its last step."""

    def __init__(self) -> None:
        self.running = 0
        self.kv_use = 0.0
        self.steps = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.pace: PaceStats | None = None

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
            self.prefix_queries += scheduler_stats.prefix_cache_stats.queries
            self.prefix_hits += scheduler_stats.prefix_cache_stats.hits
            self.pace = msgspec.convert(scheduler_stats.ec_connector_stats[PACE], PaceStats)

    def log_engine_initialized(self) -> None:
        """Nothing to say: the backend's host reports that the engine is up."""


def engine_arguments(entry: ModelEntry, models_dir: Path) -> Namespace:
    """Return the API server's arguments for this model. Raises `TandemError` on impossible ones.

    `engine_options` may name any argument of vLLM's server with underscores, and `kv_cache_gib`.
    """
    args: Namespace = make_arg_parser(FlexibleArgumentParser()).parse_args([])
    weights = models_dir / entry.weights
    options = dict(entry.engine_options)
    cache_gib = options.pop("kv_cache_gib", None)
    if current_platform.is_cpu():
        # The bfloat16 attention kernel answers nonsense on some CPUs, without an error.
        options.setdefault("dtype", "float32")
        # Compiling adds a minute to every start, and gains nothing once several answers run.
        options.setdefault("enforce_eager", True)
        cache_gib = cache_gib or _CPU_KV_CACHE_GIB
    # It keeps count of what the engine has seen, which goes wrong when a request ends between.
    options.setdefault("mm_processor_cache_gb", 0)
    images = _MAX_IMAGES if entry.vision else 0
    options.setdefault("limit_mm_per_prompt", {"image": images, "video": 0, "audio": 0})
    if cache_gib:
        options.setdefault("kv_cache_memory_bytes", int(cache_gib * 2**30))
    # One more: a realtime request that ends a long quiet begins before work has given it a place.
    options["max_num_seqs"] = max(entry.capacity + 1, options.get("max_num_seqs", 0))
    options |= {
        "model": str(weights),
        "served_model_name": [entry.id],
        "max_model_len": entry.context_tokens,
        "enable_prefix_caching": True,
        "scheduling_policy": "priority",
        "disable_log_stats": True,
        "enable_auto_tool_choice": bool(entry.tool_parser),
        "tool_call_parser": entry.tool_parser or None,
        "reasoning_parser": entry.reasoning_parser,
        "chat_template": entry.chat_template or None,
        # An engine has one compiler of grammars: left to choose, it takes the one that the first
        # request needs and refuses later ones, or ignores what they ask for.
        "structured_outputs_config": StructuredOutputsConfig(backend="xgrammar"),
        # Images come with the request; the engine fetches nothing.
        "allowed_media_domains": ["none.invalid"],
    }
    options |= offload_arguments(entry, weights)
    if unknown := sorted(options.keys() - vars(args).keys()):
        raise TandemError(
            ErrorCode.ENGINE_FAILED,
            f"unknown engine options of {entry.id}: {', '.join(unknown)}",
        )
    vars(args).update(options)
    return args


def _pace_arguments(entry: ModelEntry, args: Namespace) -> dict[str, Any]:
    """Return the arguments that make vLLM run work at the pace that realtime leaves it."""
    targets = Targets(
        ttft_ms=entry.ttft_target_ms,
        itl_ms=entry.itl_target_ms,
        ttft_factor=entry.ttft_target_factor,
        itl_factor=entry.itl_target_factor,
    )
    return {
        "scheduler_cls": f"{paced_scheduler.__module__}.{paced_scheduler.__qualname__}",
        "additional_config": args.additional_config | {PACE: msgspec.to_builtins(targets)},
    }


class Runtime:
    """A running vLLM engine with its API server's request handling."""

    prompts: Prompts

    def __init__(self, entry: ModelEntry, models_dir: Path) -> None:
        """Start the engine's processes. Blocks for many seconds: call it in a thread."""
        if entry.describe_tools:
            require_format(entry.id, entry.tool_parser)
        scheduler = self._scheduler = _Scheduler()
        self._entry = entry
        args = self._args = engine_arguments(entry, models_dir)
        vars(args).update(_pace_arguments(entry, args))
        self._engine = AsyncLLM.from_engine_args(
            AsyncEngineArgs.from_cli_args(args),
            stat_loggers=[lambda config, index: scheduler],
        )
        self._numbers = count()

    async def prepare(self) -> None:
        """Build the request handling on the loop that will use it."""
        state = State()
        tasks = await self._engine.get_supported_tasks()
        await init_app_state(self._engine, state, self._args, tasks)
        reasoning = self._engine.vllm_config.reasoning_config
        self.prompts = Prompts(
            state.openai_serving_chat,
            self._entry,
            budgets=reasoning is not None and reasoning.enabled,
        )
        await self.prompts.learn_template()

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
            prefix_queries=self._scheduler.prefix_queries,
            prefix_hits=self._scheduler.prefix_hits,
            pace=self._scheduler.pace,
        )

    def outputs(self, prompt: Prompt, request: GenerationRequest) -> AsyncGenerator[RequestOutput]:
        """Run a prompt and yield what the engine makes of it. Closing aborts it at once."""
        # An attempt may follow on an aborted one: the id alone would not tell them apart.
        request_id = f"{request.id}-{next(self._numbers)}"
        outputs: AsyncGenerator[RequestOutput] = self._engine.generate(
            prompt.engine_input,
            prompt.sampling,
            request_id,
            priority=PRIORITY[request.lane],
            **prompt.reasoning,
        )
        return outputs

    def explained(self, request: GenerationRequest, error: Exception) -> TandemError:
        """Return what vLLM raised as ours. Only a bad request's own words are shown."""
        if isinstance(error, VLLMClientError):
            return TandemError(ErrorCode.INVALID_REQUEST, str(error))
        if isinstance(error, EngineDeadError):
            return TandemError(ErrorCode.ENGINE_FAILED, "the engine stopped working")
        logger.error("vLLM failed on request %s", request.id, exc_info=error)
        return TandemError(ErrorCode.INTERNAL, "the engine could not run this request")

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
        del self._engine
        self.__dict__.pop("prompts", None)
        gc.collect()
