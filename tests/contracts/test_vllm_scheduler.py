"""The paced scheduler by itself: vLLM's own, with no engine behind it that would compute anything.

Each step puts out one token for every request whose prompt is through, and takes no time at all.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from inference.backends.priorities import PRIORITY
from inference.pace import Demand, Share
from inference.request import Lane
from inference.weights import DEFAULT_MODEL
from tests.contracts.requests import make_entry

pytestmark = pytest.mark.engine

BLOCK_TOKENS = 32
BLOCKS = 20

Steered = Callable[[Demand], Share]


class Engine:
    """A scheduler, and what it gives its engine to compute. `share` stands in for the pace."""

    def __init__(self, config: Any) -> None:
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

        from inference.backends.vllm_scheduler import paced_scheduler

        layer = FullAttentionSpec(
            block_size=BLOCK_TOKENS,
            num_kv_heads=1,
            head_size=1,
            dtype=config.model_config.dtype,
        )
        self.scheduler: Any = paced_scheduler(
            config,
            kv_cache_config=KVCacheConfig(
                num_blocks=BLOCKS + 1,
                kv_cache_tensors=[],
                kv_cache_groups=[KVCacheGroupSpec(["layer"], layer)],
            ),
            structured_output_manager=SimpleNamespace(accept_tokens=lambda _request, _tokens: True),
            block_size=BLOCK_TOKENS,
            log_stats=True,
        )
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(BLOCK_TOKENS, sha256)
        self._arrivals = itertools.count()
        self._begun: deque[tuple[Any, list[list[int]]]] = deque()
        self.share: Steered = lambda demand: Share(demand.work_rows, demand.work_prefill_tokens)
        self.demands: list[Demand] = []
        self.scheduler._pace.share = self._steer

    def _steer(self, demand: Demand, _now_s: float) -> Share:
        self.demands.append(demand)
        return self.share(demand)

    def add(self, name: str, lane: Lane, tokens: int, salt: int = 0) -> Any:
        """Add a request that answers for ever. Prompts of the same salt begin the same."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        request = Request(
            request_id=name,
            prompt_token_ids=[1000 * salt + place for place in range(tokens)],
            sampling_params=SamplingParams(max_tokens=10_000, ignore_eos=True),
            pooling_params=None,
            arrival_time=float(next(self._arrivals)),
            priority=PRIORITY[lane],
            block_hasher=self._hasher,
        )
        self.scheduler.add_request(request)
        return request

    def step(self) -> dict[str, int]:
        """Run a step; return how many tokens of each request were computed in it."""
        self._begin()
        return self._end()

    def plan_ahead(self) -> None:
        """Begin a step, and end the one that was begun before it."""
        self._begin()
        if len(self._begun) > 1:
            self._end()

    def _begin(self) -> None:
        output = self.scheduler.schedule()
        says = [
            [] if self.scheduler.requests[each].is_prefill_chunk else [7]
            for each in output.num_scheduled_tokens
        ]
        self._begun.append((output, says))

    def _end(self) -> dict[str, int]:
        from vllm.v1.outputs import ModelRunnerOutput

        output, says = self._begun.popleft()
        ran = dict(output.num_scheduled_tokens)
        self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=list(ran),
                req_id_to_index={each: place for place, each in enumerate(ran)},
                sampled_token_ids=says,
            ),
        )
        return ran

    def load(self, name: str, lane: Lane, tokens: int, loaded: int, salt: int) -> None:
        """Add a request of whose prompt so many tokens were loaded into the cache."""
        request = self.add(name, lane, tokens, salt)
        self.scheduler.waiting.remove_request(request)
        assert self.scheduler.kv_cache_manager.allocate_slots(request, loaded) is not None
        request.num_computed_tokens = loaded
        self.scheduler.kv_holding_waiting.add_request(request)

    def leave(self, name: str) -> None:
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def stats(self) -> Any:
        return self.scheduler._stats()


@pytest.fixture(scope="module")
def config(models_dir: Path) -> Any:
    """Return what an engine of a small cache would be configured with."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    from inference.backends.vllm_runtime import engine_arguments
    from inference.backends.vllm_scheduler import PACE
    from inference.pace import Targets

    entry = make_entry(
        backend="vllm",
        weights=DEFAULT_MODEL,
        context_tokens=512,
        engine_options={"block_size": BLOCK_TOKENS},
    )
    args = engine_arguments(entry, models_dir)
    args.additional_config = {PACE: msgspec.to_builtins(Targets())}
    made = AsyncEngineArgs.from_cli_args(args).create_engine_config()
    made.cache_config.num_gpu_blocks = BLOCKS + 1
    return made


@pytest.fixture
def engine(config: Any) -> Engine:
    return Engine(config)


def test_rows_beyond_their_share_wait_where_they_are(engine: Engine) -> None:
    for number in range(4):
        engine.add(f"row-{number}", Lane.BATCH, 20, salt=number)
    engine.step()
    engine.add("asked", Lane.REALTIME, 20, salt=9)
    engine.step()
    engine.share = lambda _demand: Share(1, 0)
    assert engine.step() == {"asked": 1, "row-0": 1}
    engine.share = lambda _demand: Share(0, 0)
    assert engine.step() == {"asked": 1}
    engine.leave("asked")
    engine.share = lambda demand: Share(demand.work_rows, 0)
    assert engine.step() == {f"row-{number}": 1 for number in range(4)}
    assert engine.stats().held_row_steps == 3 + 4
    assert engine.stats().evictions == 0


def test_what_has_risen_runs_before_other_work(engine: Engine) -> None:
    for number in range(3):
        engine.add(f"row-{number}", Lane.BATCH, 20, salt=number)
    engine.add("risen", Lane.FLEX, 20, salt=8)
    engine.add("asked", Lane.REALTIME, 20, salt=9)
    engine.step()
    engine.share = lambda demand: Share(demand.floor_rows, 0)
    assert engine.step() == {"asked": 1, "risen": 1}


def test_prompts_of_work_get_no_more_tokens_than_their_share(engine: Engine) -> None:
    engine.share = lambda demand: Share(demand.work_rows, min(50, demand.work_prefill_tokens))
    engine.add("row-0", Lane.BATCH, 120)
    engine.add("row-1", Lane.BATCH, 20, salt=1)
    assert engine.step() == {"row-0": 50}
    assert engine.step() == {"row-0": 50}
    assert engine.step() == {"row-0": 20, "row-1": 20}
    assert engine.step() == {"row-0": 1, "row-1": 1}


def test_a_prompt_that_waits_goes_before_one_of_work_that_is_half_way_through(
    engine: Engine,
) -> None:
    engine.share = lambda demand: Share(demand.work_rows, min(50, demand.work_prefill_tokens))
    engine.add("row", Lane.BATCH, 300)
    engine.step()
    engine.add("asked", Lane.REALTIME, 40, salt=1)
    assert engine.step()["asked"] == 40
    assert engine.step() == {"asked": 1, "row": 50}


def test_it_tells_the_pace_what_could_run(engine: Engine) -> None:
    engine.add("row", Lane.BATCH, 20)
    engine.step()
    engine.add("long", Lane.BATCH, 200, salt=1)
    engine.add("asked", Lane.REALTIME, 30, salt=2)
    engine.share = lambda _demand: Share(0, 0)
    engine.step()
    engine.step()
    waits, decodes = engine.demands[-2:]
    assert (waits.rows, waits.prefill_tokens, waits.work_rows) == (0, 30, 1)
    assert (waits.work_prefill_tokens, waits.work_context_tokens) == (200, 20)
    assert waits.waited_s > 0
    assert (decodes.rows, decodes.prefill_tokens, decodes.context_tokens) == (1, 0, 30)


@pytest.mark.parametrize("is_known", [False, True])
def test_rows_make_room_for_a_prompt_that_finds_none(engine: Engine, *, is_known: bool) -> None:
    tokens = 14 * BLOCK_TOKENS
    if is_known:
        engine.add("before", Lane.REALTIME, tokens, salt=9)
        engine.step()
        engine.leave("before")
    for number in range(4):
        engine.add(f"row-{number}", Lane.BATCH, 3 * BLOCK_TOKENS - 1, salt=number)
    engine.step()
    engine.add("asked", Lane.REALTIME, tokens, salt=9)
    assert "asked" in engine.step()
    # The last ones, and no more than it takes.
    assert 2 <= engine.stats().evictions <= 3
    assert engine.stats().recomputed_tokens >= 2 * (3 * BLOCK_TOKENS - 1)
    assert "row-0" in engine.step()


def test_a_long_prompt_is_known_as_a_whole(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(engine.scheduler._pace, "saw_prompt", seen.append)
    engine.scheduler._most_tokens = engine.scheduler.max_num_scheduled_tokens = 100
    engine.add("asked", Lane.REALTIME, 250)
    engine.add("row", Lane.BATCH, 250, salt=1)
    for _ in range(4):
        engine.step()
    assert seen == [250]


def test_a_grammar_that_is_ready_is_noticed_while_others_decode(engine: Engine) -> None:
    from vllm.v1.request import RequestStatus

    engine.add("row", Lane.BATCH, 20)
    engine.add("beside", Lane.REALTIME, 20, salt=1)
    engine.step()
    asked = engine.add("asked", Lane.REALTIME, 20, salt=2)
    asked.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    asked.structured_output_request = SimpleNamespace(grammar=None)
    engine.share = lambda _demand: Share(0, 0)
    assert engine.step() == {"beside": 1}
    asked.structured_output_request.grammar = object()
    assert engine.step()["asked"] == 20


def test_a_prompt_that_was_loaded_from_elsewhere_goes_first_like_any(engine: Engine) -> None:
    engine.add("row", Lane.BATCH, 20)
    engine.step()
    engine.load("asked", Lane.REALTIME, 64, loaded=BLOCK_TOKENS, salt=2)
    assert engine.step()["asked"] == 64 - BLOCK_TOKENS


def test_work_keeps_its_cache_where_giving_it_up_is_of_no_use(engine: Engine) -> None:
    engine.add("first", Lane.REALTIME, 10 * BLOCK_TOKENS, salt=5)
    engine.step()
    rows = [f"row-{number}" for number in range(3)]
    for number, row in enumerate(rows):
        engine.add(row, Lane.BATCH, 2 * BLOCK_TOKENS - 1, salt=number)
    engine.step()
    engine.add("asked", Lane.REALTIME, 14 * BLOCK_TOKENS, salt=9)
    assert engine.step() == {"first": 1} | dict.fromkeys(rows, 1)
    assert engine.stats().evictions == 0


def test_the_least_urgent_gives_up_its_cache_first(engine: Engine) -> None:
    for number in range(3):
        engine.add(f"row-{number}", Lane.BATCH, 3 * BLOCK_TOKENS - 1, salt=number)
    engine.step()
    engine.share = lambda demand: Share(demand.work_rows, min(96, demand.work_prefill_tokens))
    engine.add("risen", Lane.FLEX, 8 * BLOCK_TOKENS, salt=7)
    engine.step()
    engine.add("asked", Lane.REALTIME, 9 * BLOCK_TOKENS, salt=9)
    assert "asked" in engine.step()
    running = {request.request_id for request in engine.scheduler.running}
    assert "risen" in running
    assert "row-2" not in running


def test_prompts_that_cannot_be_cut_so_short_are_offered_more(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.scheduler.scheduler_config, "enable_chunked_prefill", False)
    engine.add("beside", Lane.REALTIME, 20)
    engine.step()
    engine.share = lambda demand: Share(demand.work_rows, min(4, demand.work_prefill_tokens))
    engine.add("row", Lane.BATCH, 100, salt=1)
    ran = [engine.step() for _ in range(8)]
    assert {"beside": 1, "row": 100} in ran
    assert all("beside" in each for each in ran)


def test_prompts_that_waited_for_the_cache_are_cut_like_any(engine: Engine) -> None:
    engine.add("beside", Lane.REALTIME, 10 * BLOCK_TOKENS)
    engine.add("large", Lane.REALTIME, 8 * BLOCK_TOKENS, salt=2)
    engine.step()
    engine.share = lambda demand: Share(demand.work_rows, min(50, demand.work_prefill_tokens))
    engine.add("row", Lane.BATCH, 6 * BLOCK_TOKENS, salt=1)
    for _ in range(10):
        assert "row" not in engine.step()
    engine.leave("large")
    assert engine.step() == {"beside": 1, "row": 50}


@pytest.mark.parametrize("seed", range(3))
def test_an_engine_that_plans_ahead_ends_everything(
    config: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    from inference.backends.vllm_scheduler import PacedAsyncScheduler

    monkeypatch.setattr(config.scheduler_config, "async_scheduling", True)
    engine, random_ = Engine(config), random.Random(seed)
    assert isinstance(engine.scheduler, PacedAsyncScheduler)
    engine.share = lambda demand: Share(
        random_.randint(0, demand.work_rows),
        min(demand.work_prefill_tokens, random_.choice((0, 1, 40, 500))),
    )
    asked = []
    for number in range(200):
        lane = random_.choice((Lane.REALTIME, Lane.BATCH, Lane.BATCH, Lane.FLEX))
        request = engine.add(f"{number}", lane, random_.randint(5, 200), random_.randint(0, 5))
        request.max_tokens = random_.randint(1, 40)
        asked.append(request)
        for _ in range(random_.randint(0, 8)):
            engine.plan_ahead()
        if random_.random() < 0.1:
            engine.leave(random_.choice(asked).request_id)
    for _ in range(20_000):
        if not engine.scheduler.has_requests():
            break
        engine.plan_ahead()
    assert all(request.is_finished() for request in asked)
    assert all(request.num_output_tokens <= request.max_tokens for request in asked)
    pool = engine.scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == BLOCKS
