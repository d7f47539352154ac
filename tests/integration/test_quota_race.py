"""Gateways that race for the last credit: together they never let in more than it covers."""

from __future__ import annotations

import asyncio
import secrets
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis
import redis.asyncio
from django.conf import settings

from gateway.accounting.limiter import Limiter
from gateway.accounting.refusals import LimitError
from inference.errors import ErrorCode
from inference.transport.connection import connect
from inference.transport.courier import Courier
from jobs.ledger import AccountState
from jobs.quota.claims import Claim
from jobs.quota.client import Settler
from tests.unit.jobs.quota.kit import TEAM, make_claim, make_state, prepaid, settled

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = 8
HOLD = 7
BALANCE = 1000


@pytest.fixture
async def prefix() -> AsyncIterator[str]:
    prefix = f"race-{secrets.token_hex(4)}"
    yield prefix
    async with connect(settings.REDIS_URL) as client:
        async for key in client.scan_iter(f"{prefix}:*"):
            await client.delete(key)


async def start_gateway(prefix: str) -> Process:
    numbers = map(str, (BALANCE, HOLD, CLIENTS // 2, 60))
    gateway = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.integration.racer", settings.REDIS_URL, prefix, *numbers),
        stdin=PIPE,
        stdout=PIPE,
        cwd=ROOT,
    )
    assert gateway.stdout is not None
    assert await gateway.stdout.readline() == b"ready\n"
    return gateway


async def test_two_gateways_let_in_exactly_what_a_balance_covers(prefix: str) -> None:
    gateways = await asyncio.gather(start_gateway(prefix), start_gateway(prefix))
    answers = await asyncio.gather(*(gateway.communicate(b"go\n") for gateway in gateways))
    assert [gateway.returncode for gateway in gateways] == [0, 0]
    assert sum(int(said) for said, _ in answers) == BALANCE // HOLD


class Books:
    """A ledger in memory, settled as the recorder does it: first committed, then told to Redis."""

    def __init__(self, prefix: str) -> None:
        self.balance = BALANCE
        self.lowest = BALANCE
        self.entries = 1
        self._lock = threading.Lock()
        self._redis = redis.Redis.from_url(settings.REDIS_URL)
        self._settler = Settler(self._redis, prefix)

    def read_state(self, _: int = TEAM) -> AccountState:
        with self._lock:
            return make_state(version=self.entries, balance_micros=self.balance)

    def bill(self, claim: Claim, cost_micros: int) -> None:
        with self._lock:
            self.balance -= cost_micros
            self.lowest = min(self.lowest, self.balance)
            self.entries += 1
        self._settler.settle(TEAM, self.read_state(), [settled(claim)])

    def close(self) -> None:
        self._redis.close()


async def spend_it_all(limiter: Limiter, books: Books) -> None:
    """Make requests that cost less than they hold, until the balance covers no hold any more."""
    while books.balance >= HOLD:
        claim = make_claim(spend=prepaid(HOLD))
        try:
            await limiter.admit(claim)
        except LimitError as error:
            if error.code is not ErrorCode.BALANCE_EXHAUSTED:
                raise
            continue
        limiter.release(claim, 1, 1)
        await asyncio.to_thread(books.bill, claim, 1 + books.entries % HOLD)


async def test_a_balance_that_is_billed_meanwhile_never_falls_below_zero(prefix: str) -> None:
    books = Books(prefix)
    async with connect(settings.REDIS_URL) as client:
        gateways = [
            Limiter(
                Courier(client), prefix, fail_open=False, read_state=books.read_state, wait_s=20.0
            )
            for _ in range(2)
        ]
        await asyncio.gather(
            *(spend_it_all(gateways[number % 2], books) for number in range(CLIENTS))
        )
        for gateway in gateways:
            await gateway.stop()
    books.close()
    assert 0 <= books.lowest < HOLD
