"""vLLM's scheduler, but work runs at the pace that realtime leaves it.

Runs in the engine's own process. It decides no more than which of work's rows wait for the next
step, and how many tokens the step may have; all else is vLLM's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from vllm.config import VllmConfig
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.request import Request

from inference.backends.priorities import REALTIME, RISEN
from inference.pace import Demand, Pace, Targets
from inference.pace_stats import PaceStats
from inference.step_model import Step

# The key of our options in vLLM's `additional_config`, and of our figures in its statistics.
PACE = "tandem_pace"
# An engine's first steps take longer than any other: nothing is to be learned from them.
_COLD_STEPS = 4
# What is offered doubles with each: after so many, it is more than any step has.
_MOST_REFUSALS = 20


class _Planned(NamedTuple):
    """A step that the engine has been given, and when."""

    output: SchedulerOutput
    step: Step
    at_s: float


class PacedScheduler(Scheduler):  # type: ignore[misc]
    """Paced, where each step's output is awaited."""

    steps_ahead = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = self.vllm_config.additional_config[PACE]
        self._pace = Pace(msgspec.convert(options, Targets), self.steps_ahead)
        self._most_tokens: int = self.max_num_scheduled_tokens
        self._floor_rows = max(1, self.max_num_running_reqs // 8)
        self._planned: deque[_Planned] = deque()
        self._ended_at_s = 0.0
        self._cold_steps = _COLD_STEPS
        self._offers_prefill = False
        self._refusals = 0
        self._row_steps = self._held_row_steps = 0
        self._evictions = self._recomputed_tokens = 0

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Schedule a step, with as much of work as its pace allows."""
        now_s = time.monotonic()
        self.max_num_scheduled_tokens = self._most_tokens
        self._offers_prefill = False
        if self._has_work():
            self.max_num_scheduled_tokens = min(self._most_tokens, self._plan(now_s))
        output: SchedulerOutput = super().schedule(*args, **kwargs)
        self._note(output, now_s)
        self._see_refusal(output)
        return output

    def _see_refusal(self, output: SchedulerOutput) -> None:
        """Offer more next time where prompts of work took nothing of what they could have: some
        cannot be cut that short, as in the middle of an image."""
        if not self._offers_prefill:
            return
        taken = any(
            tokens > 1 + self.num_spec_tokens and self.requests[each].priority > REALTIME
            for each, tokens in output.num_scheduled_tokens.items()
        )
        self._refusals = 0 if taken else min(self._refusals + 1, _MOST_REFUSALS)

    def update_from_output(self, scheduler_output: SchedulerOutput, *rest: Any) -> Any:
        """Take a step's output, and learn how long it took."""
        outputs = super().update_from_output(scheduler_output, *rest)
        now_s = time.monotonic()
        # Steps end in their order; empty ones were not noted.
        if self._planned and self._planned[0].output is scheduler_output:
            planned = self._planned.popleft()
            self._learn(planned.step, now_s - max(planned.at_s, self._ended_at_s))
        self._ended_at_s = now_s
        return outputs

    def _learn(self, step: Step, time_s: float) -> None:
        if self._cold_steps:
            self._cold_steps -= 1
        else:
            self._pace.learn(step, time_s)

    def make_stats(self, *args: Any, **kwargs: Any) -> SchedulerStats | None:
        """Send our figures along with vLLM's, in a field that no connector of ours uses."""
        stats: SchedulerStats | None = super().make_stats(*args, **kwargs)
        if stats is not None:
            stats.ec_connector_stats = {PACE: msgspec.to_builtins(self._stats())}
        return stats

    def _stats(self) -> PaceStats:
        return self._pace.stats(
            row_steps=self._row_steps,
            held_row_steps=self._held_row_steps,
            evictions=self._evictions,
            recomputed_tokens=self._recomputed_tokens,
        )

    # Planning a step.

    def _has_work(self) -> bool:
        every = chain(self.running, self._queued())
        return any(request.priority > REALTIME for request in every)

    def _queued(self) -> Iterator[Request]:
        """What waits, first what holds cache already: its prefix was loaded from elsewhere."""
        return chain(self.kv_holding_waiting, self.waiting)

    def _make_ready(self) -> list[Request]:
        """Return what waits and could run. What waited for its grammar is noticed here: vLLM itself
        looks only while a step has tokens to spare, and ours have none."""
        return [each for each in self._queued() if self._handle_blocked_waiting_request(each)]

    def _plan(self, now_s: float) -> int:
        """Hold what of work has to wait; return how many tokens the step may have."""
        # What runs first when the tokens do not do for all: realtime, then rows that decode.
        self.running.sort(key=_urgency)
        ready = self._make_ready()
        asked = [request for request in ready if request.priority <= REALTIME]
        self._make_room(asked)
        demand, realtime_tokens = self._demand(ready)
        share = self._pace.share(demand, now_s)
        self._row_steps += demand.work_rows
        self._held_row_steps += demand.work_rows - min(share.rows, demand.work_rows)
        # A prompt of work that is half way through would come before one of realtime's that waits.
        prefills = share.prefill_tokens > 0 and not asked
        work_tokens = self._hold(share.rows, prefills=prefills)
        self._offers_prefill = prefills and self._has_room_for_prompts(ready)
        prefill_tokens = share.prefill_tokens << self._refusals
        return int(realtime_tokens + work_tokens + prefill_tokens)

    def _has_room_for_prompts(self, ready: Sequence[Request]) -> bool:
        """Whether the cache has room for the next prompt of work: one that waits for room has
        refused nothing."""
        if any(each.priority > REALTIME and each.is_prefill_chunk for each in self.running):
            return True
        waiting = next((each for each in ready if each.priority > REALTIME), None)
        free = self.kv_cache_manager.block_pool.get_num_free_blocks()
        return waiting is not None and self._blocks_needed(waiting) <= free

    def _demand(self, ready: Sequence[Request]) -> tuple[Demand, int]:
        """Return what could run, and how many tokens of it are realtime's."""
        rows = prefill = context = work_rows = floor_rows = work_context = 0
        work_prefill = floor_prefill = 0
        arrived_at_s = now_s = time.time()
        tokens = 0
        for request in self.running:
            need = _need(request)
            if request.priority <= REALTIME:
                tokens += need
                if request.is_prefill_chunk:
                    prefill += need
                    arrived_at_s = min(arrived_at_s, request.arrival_time)
                else:
                    rows += 1
                    context += request.num_computed_tokens
            elif request.is_prefill_chunk:
                work_prefill += need
                floor_prefill += need * (request.priority == RISEN)
            else:
                work_rows += 1
                floor_rows += request.priority == RISEN
                work_context += request.num_computed_tokens
        for request in ready:
            if request.priority <= REALTIME:
                need = self._not_cached(request)
                tokens += need
                prefill += need
                arrived_at_s = min(arrived_at_s, request.arrival_time)
            else:
                work_prefill += request.num_tokens
                floor_prefill += request.num_tokens * (request.priority == RISEN)
        demand = Demand(
            rows=rows,
            prefill_tokens=prefill,
            context_tokens=context,
            waited_s=now_s - arrived_at_s,
            work_rows=work_rows,
            floor_rows=min(floor_rows, self._floor_rows),
            work_prefill_tokens=work_prefill,
            floor_prefill_tokens=floor_prefill,
            work_context_tokens=work_context,
        )
        return demand, tokens

    def _not_cached(self, request: Request) -> int:
        """Return how much of a waiting request's prompt is to be prefilled.

        With as much more as vLLM may pad it by, where tokens are guessed ahead.
        """
        return int(request.num_tokens - self._found(request)[1] + self.num_spec_tokens)

    def _found(self, request: Request) -> tuple[KVCacheBlocks, int]:
        """Return what the cache has for a waiting request beside what it holds, and how many tokens
        of it are computed. vLLM looks only for those that hold nothing."""
        if request.num_computed_tokens:
            return self.kv_cache_manager.empty_kv_cache_blocks, request.num_computed_tokens
        blocks, tokens, _ = self.kv_cache_manager.get_computed_blocks(request)
        return blocks, tokens

    def _hold(self, most_rows: int, *, prefills: bool) -> int:
        """Hold rows of work beyond so many, and its prompts unless it `prefills`; return how many
        tokens the others need."""
        tokens = rows = 0
        for request in self.running:
            if request.priority <= REALTIME:
                continue
            if request.is_prefill_chunk:
                runs = prefills
            else:
                runs = rows < most_rows
                rows += 1
                tokens += _need(request) if runs else 0
            if not runs:
                # vLLM's own way to let a request sit out a step; the next one has the number + 1.
                next_step = self.current_step + 2
                request.next_decode_eligible_step = max(
                    request.next_decode_eligible_step, next_step
                )
        return tokens

    def _make_room(self, asked: Sequence[Request]) -> None:
        """Let work give up its cache where realtime's prompts find none: vLLM would have them wait
        until a row ends. It goes on by itself once there is room, and says nothing twice.

        The least urgent of work goes first, of it the youngest; and none for a prompt that finds no
        room beside realtime either way.
        """
        if not asked:
            return
        pool = self.kv_cache_manager.block_pool
        work = sorted((each for each in self.running if each.priority > REALTIME), key=_seniority)
        room = pool.get_num_free_blocks() + sum(map(self._blocks_held, work))
        needed = 0
        for blocks in map(self._blocks_needed, asked):
            if needed + blocks > room:
                break
            needed += blocks
        while work and needed > pool.get_num_free_blocks():
            victim = work.pop()
            if self._request_blocks_can_be_freed(victim):
                self.running.remove(victim)
                self._evictions += 1
                self._recomputed_tokens += victim.num_computed_tokens
                self._preempt_request(victim, time.monotonic(), self.requires_kv_delivery)

    def _blocks_held(self, request: Request) -> int:
        return sum(map(len, self.kv_cache_manager.get_block_ids(request.request_id)))

    def _blocks_needed(self, request: Request) -> int:
        """Return how many blocks must be free for a request to begin, one of them for its answer.

        What it finds in the cache is among them, unless somebody else uses it.
        """
        found, cached_tokens = self._found(request)
        needed = self.kv_cache_manager.coordinator.get_num_blocks_to_allocate(
            request_id=request.request_id,
            num_tokens=request.num_tokens,
            new_computed_blocks=found.blocks,
            num_encoder_tokens=0,
            total_computed_tokens=cached_tokens,
            num_local_computed_tokens=cached_tokens,
            num_tokens_main_model=request.num_tokens,
            apply_admission_cap=True,
            prefill_end=request.num_tokens,
        )
        return int(needed) + 1

    # Learning from it.

    def _note(self, output: SchedulerOutput, now_s: float) -> None:
        """Remember what runs in a step, until it is known how long it took."""
        if not output.total_num_scheduled_tokens:
            return
        rows = prefill = context = 0
        most = 1 + self.num_spec_tokens
        for request_id, tokens in output.num_scheduled_tokens.items():
            request = self.requests[request_id]
            context += request.num_computed_tokens
            if tokens <= most and request.num_computed_tokens > request.num_prompt_tokens:
                rows += 1
                continue
            prefill += tokens
            done = None if request.is_prefill_chunk else request.prefill_stats
            if request.priority <= REALTIME and done is not None:
                # All of it, in however many steps.
                self._pace.saw_prompt(done.num_computed_tokens)
        self._planned.append(_Planned(output, Step(rows, prefill, context), now_s))


def _urgency(request: Request) -> tuple[bool, bool, int, float]:
    return (
        request.priority > REALTIME,
        request.is_prefill_chunk,
        request.priority,
        request.arrival_time,
    )


def _seniority(request: Request) -> tuple[int, float]:
    return request.priority, request.arrival_time


def _need(request: Request) -> int:
    """Return how many tokens of a running request are to be computed next."""
    tokens = request.num_tokens_with_spec + request.num_output_placeholders
    return max(0, int(tokens - request.num_computed_tokens))


class PacedAsyncScheduler(PacedScheduler, AsyncScheduler):  # type: ignore[misc]
    """Paced, where a step is scheduled while the one before it runs."""

    steps_ahead = 2


def paced_scheduler(vllm_config: VllmConfig, **rest: Any) -> Scheduler:
    """Make the scheduler that fits how the engine runs: what vLLM is given as `scheduler_cls`."""
    is_async = vllm_config.scheduler_config.async_scheduling
    kind: Callable[..., Scheduler] = PacedAsyncScheduler if is_async else PacedScheduler
    return kind(vllm_config=vllm_config, **rest)
