"""Connections to Redis, configured alike everywhere: they time out, and they come back."""

from __future__ import annotations

import asyncio
from typing import Any

import redis
import redis.asyncio
from redis.backoff import ConstantBackoff
from redis.connection import HiredisRespSerializer
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

# A blocking read must return well before the socket's own timeout, or the client calls it dead.
SOCKET_TIMEOUT_S = 5.0
BLOCK_MS = 1000
RETRY_AFTER_S = 0.1
_MAX_CONNECTIONS = 16

# What a restarting server answers with: refused, reset, silent, or "LOADING".
Unreachable = (RedisConnectionError, RedisTimeoutError, OSError)


def connect(redis_url: str) -> redis.asyncio.Redis:
    """Return an asyncio client. One retry, so that a pooled connection that died is replaced.

    In a burst, commands wait for a connection; redis-py's usual pool would refuse them.
    """
    # Connections over a Unix socket do not know the option.
    keepalive = {} if redis_url.startswith("unix:") else {"socket_keepalive": True}
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        redis_url,
        max_connections=_MAX_CONNECTIONS,
        timeout=SOCKET_TIMEOUT_S,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=2.0,
        **keepalive,
        retry=redis.asyncio.retry.Retry(ConstantBackoff(0.02), 1),
        retry_on_error=list(Unreachable),
    )
    pool.connection_class = _mended(pool.connection_class)
    return redis.asyncio.Redis.from_pool(pool)


def _mended(kind: type[Any]) -> type[Any]:
    """Return a kind of connection that packs in C, and never swallows a cancellation.

    redis-py's asyncio connections pack in Python what its blocking ones give to hiredis. And they
    write with `asyncio.wait_for`; that of Python 3.11 returns as if nothing had happened when its
    task is cancelled just as the write ends: the caller has left, its request goes on.
    """
    packer = HiredisRespSerializer()

    class Mended(kind):  # type: ignore[misc]
        def pack_command(self, *args: Any) -> list[bytes]:
            packed: list[bytes] = packer.pack(*args)
            return packed

        async def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
            task = asyncio.current_task()
            before = task.cancelling() if task else 0
            await super().send_packed_command(*args, **kwargs)
            if task and task.cancelling() > before:
                # The reply to what was written must not become that of the next command.
                await self.disconnect(nowait=True)
                raise asyncio.CancelledError

    return Mended


def connect_sync(redis_url: str) -> redis.Redis:
    """Return a blocking client, for threads and commands."""
    return redis.Redis.from_url(
        redis_url,
        socket_timeout=2.0,
        socket_connect_timeout=2.0,
        retry=redis.retry.Retry(ConstantBackoff(0.02), 1),
        retry_on_error=list(Unreachable),
    )


def is_missing_group(error: ResponseError) -> bool:
    """Whether a stream or its consumer group is gone, as after a restart that kept no data."""
    return str(error).startswith("NOGROUP")
