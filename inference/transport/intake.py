"""The engine's way in: requests from the model's queue, and what it is told by its control stream.

An engine pulls a request only when it can start it, so that several engines of one model share the
load by themselves. What an engine took but did not confirm before it died is claimed by another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec
import redis.asyncio
from redis.exceptions import ResponseError

from inference.transport.connection import RETRY_AFTER_S, Unreachable, is_missing_group
from inference.transport.courier import Courier
from inference.transport.frames import (
    Accepted,
    Cancel,
    Frame,
    Order,
    QueueEntry,
    decode_cancel,
    decode_entry,
    encode,
)
from inference.transport.keys import GROUP, Keys
from inference.transport.streams import Entry, Reader, claim_idle

logger = logging.getLogger(__name__)

# Confirming takes a millisecond; whoever has not done it after so long is gone.
_CLAIM_IDLE_MS = 2000
_CLAIM_EVERY_S = 1.0
# KEYS: the queue, the gateway's sign of life, its stream. ARGV: the group, the entry, what to say.
_CONFIRM = """
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
local said = redis.call('XADD', KEYS[3], 'NOMKSTREAM', '*', 'f', ARGV[3])
return said and redis.call('EXISTS', KEYS[2]) or 0
"""


class Intake:
    """One engine's reading end of one of its model's queues."""

    def __init__(
        self,
        reader: Reader,
        client: redis.asyncio.Redis,
        courier: Courier,
        keys: Keys,
        engine_id: str,
        queue: str,
    ) -> None:
        self._reader = reader
        self._client = client
        self._courier = courier
        self._confirm = courier.script(_CONFIRM)
        self._keys = keys
        self._engine_id = engine_id
        self._queue = queue
        self._control = keys.control(engine_id)
        self._claim_at_s = 0.0
        self._seen_id: bytes | str = "0"

    async def open(self) -> None:
        """Make sure that the queue and its group exist."""
        try:
            await self._client.xgroup_create(self._queue, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def close(self) -> None:
        """Remove this engine's traces; what it had not confirmed is left to others."""
        try:
            await self._client.delete(self._control)
        except Unreachable:
            logger.info("Redis is gone; the control stream expires by itself")

    async def take(self, *, wait: bool = True) -> tuple[bytes, QueueEntry] | None:
        """Return a request, or None if there is none; `wait` a moment for it or not.

        Raises nothing: it waits out Redis.
        """
        try:
            found = await self._abandoned()
            if found is None:
                found = await self._reader.read_group(
                    self._queue, GROUP, self._engine_id, wait=wait
                )
                # It stays in the queue until it is confirmed, and is no arrival any more.
                self._seen_id = found[0] if found else self._seen_id
        except ResponseError as error:
            if is_missing_group(error):
                await self._open_again()
            else:
                await asyncio.sleep(RETRY_AFTER_S)
            return None
        except Unreachable:
            await asyncio.sleep(RETRY_AFTER_S)
            return None
        return await self._decode(*found) if found else None

    async def arrival(self) -> bytes | None:
        """Wait a moment, or until a request comes to the queue, and take nothing.

        For an engine that must not keep a permit meanwhile. Returns the entry that has come, if
        one has; another engine may be quicker.
        """
        try:
            entries = await self._reader.read(self._queue, self._seen_id, count=1)
        except (*Unreachable, ResponseError):
            await asyncio.sleep(RETRY_AFTER_S)
            return None
        for entry_id, _ in entries:
            self._seen_id = entry_id
            return entry_id
        return None

    async def is_untaken(self, entry_id: bytes) -> bool:
        """Whether no engine has taken an entry: those that stand by had it at once."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.xrange(self._queue, entry_id, entry_id)
        pipeline.xpending_range(self._queue, GROUP, entry_id, entry_id, 1)
        try:
            there, pending = await pipeline.execute()
        except (*Unreachable, ResponseError):
            return False
        return bool(there) and not pending

    async def _open_again(self) -> None:
        try:
            await self.open()
        except (*Unreachable, ResponseError):
            await asyncio.sleep(RETRY_AFTER_S)

    async def _abandoned(self) -> Entry | None:
        """Claim a request that another engine took and never confirmed."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._claim_at_s:
            return None
        found = await claim_idle(self._client, self._queue, GROUP, self._engine_id, _CLAIM_IDLE_MS)
        if found is None:
            self._claim_at_s = now_s + _CLAIM_EVERY_S
        return found

    async def _decode(
        self, entry_id: bytes, fields: dict[bytes, bytes]
    ) -> tuple[bytes, QueueEntry] | None:
        try:
            return entry_id, decode_entry(fields[b"r"])
        except (KeyError, msgspec.DecodeError):
            logger.exception("Dropping a request that cannot be read: %r", entry_id)
            await self.drop(entry_id)
            return None

    async def drop(self, entry_id: bytes) -> None:
        """Take an entry off the queue without running it."""
        try:
            await self._client.xack(self._queue, GROUP, entry_id)
            await self._client.xdel(self._queue, entry_id)
        except Unreachable:
            logger.info("A dropped request comes back once Redis does")

    async def confirm(self, entry_id: bytes, entry: QueueEntry) -> bool:
        """Take the entry off the queue and tell its gateway so, both or neither.

        Returns False if the request must not be run: its gateway is gone, or Redis cannot be
        reached. The gateway may have been told all the same; say sorry to it.
        """
        accepted = Frame(
            entry.request.id, entry.attempt, self._engine_id, 0, Accepted(self._engine_id)
        )
        keys = [self._queue, self._keys.gateway(entry.gateway_id)]
        keys.append(self._keys.reply(entry.gateway_id))
        try:
            alive = await self._courier.run(
                self._confirm, keys, [GROUP, entry_id, encode([accepted])]
            )
        except (*Unreachable, ResponseError):
            return False
        return bool(alive)

    async def control(self) -> AsyncIterator[Cancel | Order]:
        """Yield what gateways and operators tell this engine, for ever."""
        last_id: bytes | str = "0"
        while True:
            try:
                entries = await self._reader.read(self._control, last_id, count=256)
            except (*Unreachable, ResponseError):
                await asyncio.sleep(RETRY_AFTER_S)
                continue
            for entry_id, fields in entries:
                last_id = entry_id
                if (told := _read_control(fields)) is not None:
                    yield told


def _read_control(fields: dict[bytes, bytes]) -> Cancel | Order | None:
    try:
        if (order := fields.get(b"o")) is not None:
            return Order(order.decode())
        return decode_cancel(fields[b"c"])
    except (KeyError, ValueError, msgspec.DecodeError):
        logger.error("Somebody of another version told this engine what it cannot read")
        return None
