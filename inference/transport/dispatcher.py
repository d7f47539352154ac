"""The gateway's end of the transport: sends requests to engines and hands out what comes back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import msgspec
import uuid_utils
from redis.exceptions import ResponseError

from inference.errors import ErrorCode, TandemError
from inference.fold import Answer, fold
from inference.request import GenerationRequest, Lane
from inference.transport.connection import RETRY_AFTER_S, Unreachable, connect
from inference.transport.courier import Courier
from inference.transport.engines import EngineView
from inference.transport.frames import (
    Accepted,
    Cancel,
    CancelReason,
    EngineState,
    Frame,
    QueueEntry,
    decode_frames,
    encode,
)
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.run import Bell, Run, Verdict
from inference.transport.streams import Reader

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Refuses when the queue is full, in the same step as it adds: no request slips in between.
# Whoever asks is alive: after a restart of Redis the heartbeat may have expired, and engines run
# nothing for a gateway without one.
_ENQUEUE = """
local limit = tonumber(ARGV[1])
local waiting = redis.call('XLEN', KEYS[1])
if limit >= 0 and waiting >= limit then return waiting end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
return redis.call('XADD', KEYS[1], '*', 'r', ARGV[2])
"""
# The streams of a dead gateway, and to a dead engine, disappear by themselves.
_REPLY_TTL_S = 60
_CONTROL_TTL_S = 60
_NO_LIMIT = -1
_STOPPING = "the gateway is shutting down"


class Dispatcher:
    """Sends requests and receives their events. One for each gateway process, on its loop."""

    def __init__(self, options: TransportOptions) -> None:
        self.gateway_id = str(uuid_utils.uuid7())
        self._options = options
        self._keys = Keys(options.prefix)
        self._client = connect(options.redis_url)
        self._reader = Reader(options.redis_url)
        self.courier = Courier(self._client)
        self._enqueue = self.courier.script(_ENQUEUE)
        self._reply_key = self._keys.reply(self.gateway_id)
        self._last_id: bytes | str = "0"
        self._runs: dict[str, Run] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._mean_run_s = 5.0
        self.engines = EngineView(
            self._client, self._keys, options, self._engine_died, self._give_up_waiting
        )
        self.redis_ok = False
        self._stopping = False

    @property
    def in_flight(self) -> int:
        """Requests that were sent and have not ended."""
        return len(self._runs)

    async def start(self) -> None:
        """Announce this gateway, wait for the first look at the engines, and begin to read."""
        try:
            await self._beat()
        except Unreachable:
            logger.warning("Redis is not reachable yet; trying again until it is")
        self._spawn(self._beat_for_ever())
        self._spawn(self._read_for_ever())

    async def stop(self) -> None:
        """End every run and leave nothing in Redis."""
        self._stopping = True
        for run in list(self._runs.values()):
            run.fail(ErrorCode.UNAVAILABLE, _STOPPING)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._client.delete(self._reply_key, self._keys.gateway(self.gateway_id))
        except Unreachable:
            logger.info("Redis is gone; the reply stream expires by itself")

    async def close(self) -> None:
        """Close the connections, which others may have used through the courier until now."""
        await self._client.aclose()
        await self._reader.aclose()

    async def submit(
        self,
        request: GenerationRequest,
        *,
        max_waiting: int | None,
        wait_s: float | None = None,
        bell: Bell | None = None,
        attempt: int = 0,
    ) -> Run:
        """Queue a request and return its run.

        `attempt` counts on from what was tried before, of a request that another model had first.
        With `wait_s`, the run fails as RESOURCE_UNAVAILABLE if no engine has a place for it by
        then. Raises `TandemError`: NO_ENGINE at once if nothing serves the model, OVERLOADED (or
        RESOURCE_UNAVAILABLE, in the flex lane) if `max_waiting` requests wait already, UNAVAILABLE
        if Redis does not come back in time.
        """
        queue = self._keys.queue(request.model, request.lane)
        limit = _NO_LIMIT if max_waiting is None else max_waiting
        run = Run(request, queue, self._closed, bell)
        run.attempt = attempt
        await self._submit(run, limit)
        if wait_s is not None and not run.ended:
            loop = asyncio.get_running_loop()
            run.timers.append(loop.call_later(wait_s, self._tired, run, wait_s))
        return run

    async def count(self, request: GenerationRequest, *, max_waiting: int) -> Answer:
        """Return an answer that has nothing but its prompt's tokens, by the model's own tokenizer
        and template, or what an upstream says of them.

        Raises `TandemError` as `submit` does, or with what is wrong with the request.
        """
        run = Run(request, self._keys.counts(request.model), self._closed)
        await self._submit(run, max_waiting)
        try:
            return await fold(run)
        finally:
            run.close()

    async def _submit(self, run: Run, max_waiting: int) -> None:
        request = run.request
        if self._stopping:
            raise TandemError(ErrorCode.UNAVAILABLE, _STOPPING)
        if not self.engines.ready(request.model):
            raise self._no_engine(request.model)
        self._runs[request.id] = run
        putting = self._spawn(self._put(run, max_waiting))
        try:
            # Shielded, so that a caller that leaves meanwhile neither costs a connection nor
            # leaves a request in the queue.
            refused_behind = await asyncio.shield(putting)
        except BaseException:
            run.close()
            raise
        if refused_behind is not None:
            run.close()
            raise self._overloaded(request, refused_behind)
        if not run.ended:
            left_s = max(0.0, request.deadline_s - time.time())
            loop = asyncio.get_running_loop()
            run.timers.append(loop.call_later(left_s, self._expire, run))

    def _no_engine(self, model: str) -> TandemError:
        reports = self.engines.of(model)
        reason = "no engine is running for it"
        for report in reports:
            if report.state is EngineState.FAILED:
                reason = f"its engine has failed ({report.reason})"
            elif report.state is EngineState.LOADING:
                reason = "its engine is still loading"
            elif report.state is EngineState.DRAINING:
                reason = "its engine is draining"
        message = f"model '{model}' cannot be served right now: {reason}"
        return TandemError(ErrorCode.NO_ENGINE, message, retry_after_s=5)

    def _overloaded(self, request: GenerationRequest, waiting: int) -> TandemError:
        model = request.model
        if request.lane is Lane.FLEX:
            message = f"Resource Unavailable: {waiting} flex requests wait for '{model}' already"
            return TandemError(ErrorCode.RESOURCE_UNAVAILABLE, message)
        capacity = sum(report.capacity for report in self.engines.ready(model)) or 1
        wait_s = min(60.0, max(1.0, waiting / capacity * self._mean_run_s))
        message = f"model '{model}' is overloaded: {waiting} requests are waiting already"
        return TandemError(ErrorCode.OVERLOADED, message, retry_after_s=wait_s)

    async def _put(self, run: Run, limit: int) -> int | None:
        """Add the request to its queue. Return how many wait there if that is too many."""
        entry = QueueEntry(gateway_id=self.gateway_id, attempt=run.attempt, request=run.request)
        keys = [run.queue, self._keys.gateway(self.gateway_id)]
        try:
            arguments: list[int | bytes] = [limit, encode(entry), self._options.heartbeat_ttl_ms]
        except OverflowError:
            # Only schemas hold numbers as they were sent.
            raise TandemError(
                ErrorCode.INVALID_REQUEST,
                "a schema in the request has an integer that does not fit 64 bits",
            ) from None
        give_up_s = time.monotonic() + self._options.enqueue_wait_s
        while True:
            try:
                result: bytes | int = await self.courier.run(self._enqueue, keys, arguments)
                break
            except (*Unreachable, ResponseError) as error:
                # A server that answers, but refuses, is out of memory or may only be read.
                refused = isinstance(error, ResponseError)
                if refused or time.monotonic() >= give_up_s:
                    raise TandemError(
                        ErrorCode.UNAVAILABLE,
                        "the request queue cannot be reached right now",
                        retry_after_s=5,
                    ) from error
                await asyncio.sleep(RETRY_AFTER_S)
        if isinstance(result, int):
            return result
        run.entry_id = result
        if run.ended:
            # The caller has left meanwhile.
            self._closed(run)
        return None

    # What comes back.

    async def _read_for_ever(self) -> None:
        while True:
            try:
                entries = await self._reader.read(self._reply_key, self._last_id, count=512)
            except (*Unreachable, ResponseError):
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            for entry_id, fields in entries:
                self._last_id = entry_id
                self._receive(fields)

    def _receive(self, fields: dict[bytes, bytes]) -> None:
        data = fields.get(b"f")
        if data is None:
            return
        try:
            frames = decode_frames(data)
        except msgspec.DecodeError:
            logger.error("An engine of another version wrote frames that cannot be read")
            return
        for frame in frames:
            self._deliver(frame)

    def _deliver(self, frame: Frame) -> None:
        run = self._runs.get(frame.request_id)
        if run is None:
            if isinstance(frame.body, Accepted):
                # The caller left while the request was on its way.
                self._cancel(frame.engine_id, frame, CancelReason.CLIENT_LEFT)
            return
        match run.receive(frame):
            case Verdict.CANCEL_SENDER:
                self._cancel(frame.engine_id, frame, CancelReason.SUPERSEDED)
            case Verdict.RETRY:
                self._lose(run)
            case _:
                pass
        if run.ended:
            self._forget(run)

    # What goes wrong.

    def _closed(self, run: Run, reason: CancelReason = CancelReason.CLIENT_LEFT) -> None:
        """Nobody waits for this run any more: the engine must stop, or must never start."""
        self._forget(run)
        if run.engine_id is not None:
            self._cancel(run.engine_id, run, reason)
        elif run.entry_id is not None:
            self._spawn(self._insist(partial(self._client.xdel, run.queue, run.entry_id)))

    def _expire(self, run: Run) -> None:
        if not run.ended:
            self._closed(run, CancelReason.TIMEOUT)
            run.fail(ErrorCode.TIMEOUT, "the request did not finish in time and was cancelled")

    def _tired(self, run: Run, waited_s: float) -> None:
        """Refuse a run that no engine has taken. Nobody pays for it, should one do so just now."""
        if not run.ended and run.engine_id is None:
            self._closed(run)
            run.fail(
                ErrorCode.RESOURCE_UNAVAILABLE,
                f"Resource Unavailable: no engine of '{run.request.model}' had a place for this "
                f"flex request within {waited_s:g} s; try again later, or with another "
                "`service_tier`",
            )

    def _cancel(self, engine_id: str, which: Run | Frame, reason: CancelReason) -> None:
        cancel = encode(Cancel(request_id=which.request_id, attempt=which.attempt, reason=reason))
        self._spawn(self._insist(partial(self._send_cancel, engine_id, cancel)))

    async def _send_cancel(self, engine_id: str, cancel: bytes) -> None:
        control = self._keys.control(engine_id)
        pipeline = self._client.pipeline(transaction=False)
        pipeline.xadd(control, {"c": cancel}, maxlen=10_000)
        pipeline.expire(control, _CONTROL_TTL_S)
        await pipeline.execute()

    def _engine_died(self, engine_id: str) -> None:
        for run in list(self._runs.values()):
            if run.engine_id == engine_id:
                self._lose(run)
        self._give_up_waiting()

    def _give_up_waiting(self) -> None:
        """End what waits in a queue that nobody reads any more."""
        for run in list(self._runs.values()):
            if run.engine_id is None and not self.engines.ready(run.request.model):
                self._closed(run)
                error = self._no_engine(run.request.model)
                run.fail(error.code, error.message)

    def _lose(self, run: Run) -> None:
        """The engine of this run, or what it said, is gone: try another, or say so."""
        if run.engine_id is not None:
            # Should it live after all, it must stop.
            self._cancel(run.engine_id, run, CancelReason.SUPERSEDED)
        if self.engines.ready(run.request.model) and run.next_attempt():
            self._spawn(self._put_again(run))
            return
        run.fail(ErrorCode.ENGINE_LOST, "the engine stopped before the answer was complete")
        self._forget(run)

    async def _put_again(self, run: Run) -> None:
        try:
            await self._put(run, _NO_LIMIT)
        except TandemError as error:
            run.fail(error.code, error.message)
            self._forget(run)

    # Staying alive.

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._options.heartbeat_s)
            try:
                await self._beat()
            except (*Unreachable, ResponseError):
                self.redis_ok = False
                self.engines.forgive()

    async def _beat(self) -> None:
        pipeline = self._client.pipeline(transaction=False)
        pipeline.set(self._keys.gateway(self.gateway_id), b"1", px=self._options.heartbeat_ttl_ms)
        pipeline.expire(self._reply_key, _REPLY_TTL_S)
        if self._last_id != "0":
            pipeline.xtrim(self._reply_key, minid=self._last_id, approximate=True)
        results = await pipeline.execute()
        if not results[1]:
            self.engines.forgive()
            await self._make_reply_stream()
        await self.engines.refresh()
        self.redis_ok = True

    async def _make_reply_stream(self) -> None:
        """Create the reply stream; if it had existed, Redis has forgotten everything."""
        await self._client.xadd(self._reply_key, {"hello": b"1"})
        await self._client.expire(self._reply_key, _REPLY_TTL_S)
        for run in list(self._runs.values()):
            self._lose(run)

    # Bookkeeping.

    def _forget(self, run: Run) -> None:
        for timer in run.timers:
            timer.cancel()
        if self._runs.pop(run.request.id, None) is not None and run.text_sent:
            # A moving mean of how long runs take, for `retry-after`.
            self._mean_run_s += 0.1 * (time.monotonic() - run.created_s - self._mean_run_s)

    def _spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @staticmethod
    async def _insist(command: Callable[[], Awaitable[Any]]) -> None:
        """Run a command as soon as Redis is there: no engine shall work for nobody."""
        while True:
            try:
                await command()
            except Unreachable:
                await asyncio.sleep(RETRY_AFTER_S)
            else:
                return
