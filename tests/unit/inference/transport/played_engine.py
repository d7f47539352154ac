"""An engine that tests of the gateway's end play by hand, and a request for it."""

from __future__ import annotations

import time
from functools import partial

import redis.asyncio

from inference.events import Event, Finished, FinishReason, Usage
from inference.request import GenerationRequest, Lane, Message, Role, Sampling, TextPart
from inference.transport.frames import (
    Accepted,
    Cancel,
    EngineReport,
    EngineState,
    Frame,
    QueueEntry,
    decode_cancel,
    decode_entry,
    encode,
)
from inference.transport.keys import Keys
from tests.streams import entries_of, until

FINISHED = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
)


def make_request(
    request_id: str = "r1", timeout_s: float = 60, lane: Lane = Lane.REALTIME
) -> GenerationRequest:
    return GenerationRequest(
        id=request_id,
        model="m",
        messages=(Message(role=Role.USER, parts=(TextPart("hi"),)),),
        sampling=Sampling(max_tokens=1),
        deadline_s=time.time() + timeout_s,
        lane=lane,
    )


class Engine:
    """An engine's traces in Redis."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        keys: Keys,
        engine_id: str,
        lane: Lane = Lane.REALTIME,
    ) -> None:
        self._client = client
        self._keys = keys
        self.engine_id = engine_id
        self._queue = keys.queue("m", lane)

    async def live(self, state: EngineState = EngineState.READY) -> None:
        report = EngineReport(
            engine_id=self.engine_id,
            model="m",
            host="h",
            pid=1,
            state=state,
            capacity=1,
            in_flight=0,
            kv_use=None,
            started_at_s=0,
            reason="because",
        )
        await self._client.sadd(self._keys.engines, self.engine_id)
        await self._client.set(self._keys.engine(self.engine_id), encode(report))

    async def die(self) -> None:
        await self._client.delete(self._keys.engine(self.engine_id))

    async def waiting(self) -> list[QueueEntry]:
        entries = await entries_of(self._client, self._queue)
        return [decode_entry(fields[b"r"]) for _, fields in entries]

    async def take(self) -> QueueEntry:
        """Wait for a request and accept it."""
        (entry_id, fields), *_ = await until(partial(entries_of, self._client, self._queue))
        await self._client.xdel(self._queue, entry_id)
        entry = decode_entry(fields[b"r"])
        await self.say(entry, 0, Accepted(self.engine_id))
        return entry

    async def say(self, entry: QueueEntry, seq: int, *bodies: Accepted | Event) -> None:
        frames = [
            Frame(entry.request.id, entry.attempt, self.engine_id, number, each)
            for number, each in enumerate(bodies, seq)
        ]
        await self._client.xadd(self._keys.reply(entry.gateway_id), {"f": encode(frames)})

    async def cancelled(self) -> Cancel:
        """Wait for a cancel."""
        control = self._keys.control(self.engine_id)
        (_, fields), *_ = await until(partial(entries_of, self._client, control))
        return decode_cancel(fields[b"c"])

    async def has_none_waiting(self) -> bool:
        return not await self.waiting()
