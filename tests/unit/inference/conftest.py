"""A corner of the tests' Redis for each test."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
import redis.asyncio
from django.conf import settings

from inference.transport.connection import connect
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions


@pytest.fixture
def options() -> TransportOptions:
    """Return options with a prefix of this test's own, and fast heartbeats."""
    return TransportOptions(
        redis_url=settings.REDIS_URL,
        prefix=f"unit-{secrets.token_hex(4)}",
        heartbeat_s=0.05,
        dead_after_s=1.0,
        enqueue_wait_s=0.2,
    )


@pytest.fixture
def keys(options: TransportOptions) -> Keys:
    return Keys(options.prefix)


@pytest.fixture
async def client(options: TransportOptions) -> AsyncIterator[redis.asyncio.Redis]:
    async with connect(options.redis_url) as connected:
        yield connected
