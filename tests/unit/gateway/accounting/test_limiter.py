"""How a gateway asks: accounts it loads, servers that are away, callers that leave."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import redis.asyncio
from django.conf import settings
from django.db import OperationalError

from gateway.accounting.limiter import Limiter, estimate_tokens
from gateway.accounting.refusals import LimitError
from inference.errors import ErrorCode, TandemError
from inference.transport.connection import connect
from inference.transport.courier import Courier
from jobs.ledger import AccountState
from jobs.quota.claims import Claim, Granted, Limits
from jobs.quota.client import Quota
from tests.conftest import Eventually
from tests.unit.jobs.quota.kit import TEAM, buckets, make_claim, make_state, prepaid


class Database:
    """Where accounts are read from. `read_state` is called in threads."""

    def __init__(self) -> None:
        self.state = make_state()
        self.away = False
        self.reads = 0
        self.open = threading.Event()
        self.open.set()

    def read_state(self, team_id: int) -> AccountState:
        assert team_id == TEAM
        self.reads += 1
        assert self.open.wait(20)
        if self.away:
            raise OperationalError("away")
        return self.state


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
async def client() -> AsyncIterator[redis.asyncio.Redis]:
    async with connect(settings.REDIS_URL) as client:
        yield client


Make = Callable[..., Limiter]


@pytest.fixture
async def make(client: redis.asyncio.Redis, database: Database) -> AsyncIterator[Make]:
    """Return a function that makes a limiter; all of a test share one quota."""
    prefix = f"limiter-{secrets.token_hex(4)}"
    made: list[Limiter] = []

    def make(**changes: Any) -> Limiter:
        options: dict[str, Any] = {
            "courier": Courier(client),
            "prefix": prefix,
            "fail_open": False,
            "read_state": database.read_state,
            "wait_s": 0.0,
        }
        made.append(Limiter(**options | changes))
        return made[-1]

    yield make
    for limiter in made:
        await limiter.stop()
    async for key in client.scan_iter(f"{prefix}:*"):
        await client.delete(key)


@pytest.fixture
async def nowhere() -> AsyncIterator[redis.asyncio.Redis]:
    """A server that is not there."""
    async with connect("unix:///nowhere/redis.sock") as client:
        yield client


async def code_of(limiter: Limiter, claim: Claim) -> ErrorCode:
    with pytest.raises(TandemError) as caught:
        await limiter.admit(claim)
    return caught.value.code


async def test_without_limits_nobody_is_asked(make: Make, nowhere: redis.asyncio.Redis) -> None:
    limiter = make(courier=Courier(nowhere))
    claim = make_claim(spend=prepaid(0))
    assert await limiter.admit(claim) == Granted()
    limiter.release(claim, 1, 1)


async def test_it_raises_what_refuses_a_request(make: Make, database: Database) -> None:
    limiter = make()
    limits = Limits(requests_per_minute=1)
    await limiter.admit(make_claim(key=limits))
    with pytest.raises(LimitError) as caught:
        await limiter.admit(make_claim(key=limits))
    assert caught.value.code is ErrorCode.RATE_LIMITED
    assert caught.value.retry_after_s == pytest.approx(60, abs=20)
    assert buckets(caught.value.refusal)[0].limit == 1
    assert database.reads == 0


async def test_it_loads_an_account_once_for_all_who_wait(
    make: Make, database: Database, eventually: Eventually
) -> None:
    limiter = make()
    database.open.clear()
    asking = [asyncio.create_task(limiter.admit(make_claim(spend=prepaid(10)))) for _ in range(5)]
    await eventually(lambda: database.reads == 1)
    database.open.set()
    await asyncio.gather(*asking)
    assert database.reads == 1


async def test_an_account_is_loaded_again_after_redis_has_forgotten_it(
    make: Make, client: redis.asyncio.Redis, database: Database
) -> None:
    limiter = make()
    await limiter.admit(make_claim(spend=prepaid(10)))
    async for key in client.scan_iter("limiter-*"):
        await client.delete(key)
    await client.script_flush()
    await limiter.admit(make_claim(spend=prepaid(10)))
    assert database.reads == 2


async def test_the_database_has_the_last_word_on_a_balance(make: Make, database: Database) -> None:
    """Redis was not told of a top-up."""
    limiter = make()
    await make().admit(make_claim(spend=prepaid(1000)))
    assert database.reads == 1
    database.state = make_state(version=2, balance_micros=3000)
    await limiter.admit(make_claim(spend=prepaid(2000)))
    assert database.reads == 2


async def test_the_database_is_not_asked_for_each_refusal(make: Make, database: Database) -> None:
    limiter = make()
    for _ in range(5):
        assert await code_of(limiter, make_claim(spend=prepaid(2000))) == "balance_exhausted"
    assert database.reads == 1


async def test_a_known_balance_serves_while_the_database_is_away(
    make: Make, database: Database
) -> None:
    limiter = make()
    await limiter.admit(make_claim(spend=prepaid(100)))
    database.away = True
    await limiter.admit(make_claim(spend=prepaid(100)))
    assert await code_of(make(), make_claim(spend=prepaid(900))) == "balance_exhausted"


async def test_an_unknown_balance_refuses(make: Make, database: Database) -> None:
    database.away = True
    assert await code_of(make(), make_claim(spend=prepaid(1))) is ErrorCode.UNAVAILABLE


async def test_an_unknown_balance_lets_in_if_so_decided_but_limits_hold(
    make: Make, database: Database
) -> None:
    database.away = True
    limiter = make(fail_open=True)
    limits = Limits(requests_per_minute=1)
    await limiter.admit(make_claim(spend=prepaid(1), key=limits))
    again = make_claim(spend=prepaid(1), key=limits)
    assert await code_of(limiter, again) is ErrorCode.RATE_LIMITED


async def test_without_redis_it_refuses(make: Make, nowhere: redis.asyncio.Redis) -> None:
    claim = make_claim(key=Limits(requests_per_minute=1))
    assert await code_of(make(courier=Courier(nowhere)), claim) is ErrorCode.UNAVAILABLE


async def test_without_redis_it_lets_in_if_so_decided(
    make: Make, nowhere: redis.asyncio.Redis
) -> None:
    limiter = make(courier=Courier(nowhere), fail_open=True, wait_s=60.0)
    claim = make_claim(key=Limits(requests_per_minute=1))
    for _ in range(2):
        assert await limiter.admit(claim) == Granted()
    limiter.release(claim, 1, 1)


async def test_it_waits_for_a_redis_that_is_away_for_a_moment(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Quota.ask
    failures = iter([ConnectionResetError(), ConnectionResetError()])

    def flaky(self: Quota, claim: Claim) -> asyncio.Future[bytes]:
        answer = asyncio.get_running_loop().create_future()
        for failure in failures:
            answer.set_exception(failure)
            return answer
        return ask(self, claim)

    monkeypatch.setattr(Quota, "ask", flaky)
    granted = await make(wait_s=60.0).admit(make_claim(key=Limits(requests_per_minute=5)))
    assert buckets(granted)[0].remaining == 4


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have every answer get lost, and return the requests that were asked for."""
    ask = Quota.ask
    asked: list[str] = []

    async def lose(answer: asyncio.Future[bytes], claim: Claim) -> bytes:
        await answer
        asked.append(claim.request_id)
        raise ConnectionResetError

    def ask_in_vain(self: Quota, claim: Claim) -> asyncio.Future[bytes]:
        return asyncio.create_task(lose(ask(self, claim), claim))

    monkeypatch.setattr(Quota, "ask", ask_in_vain)
    return asked


async def test_what_was_granted_in_an_answer_that_got_lost_is_taken_back(
    make: Make, lossy: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = make()
    limits = Limits(max_concurrent=1)
    assert await code_of(limiter, make_claim(team=limits)) is ErrorCode.UNAVAILABLE
    assert lossy
    await limiter.stop()
    monkeypatch.undo()
    await limiter.admit(make_claim(team=limits))


async def test_a_caller_that_leaves_while_redis_is_away_leaves_nothing_behind(
    make: Make, lossy: list[str], eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = make(wait_s=60.0)
    limits = Limits(max_concurrent=1)
    asking = asyncio.create_task(limiter.admit(make_claim(team=limits)))
    await eventually(lambda: bool(lossy))
    # It waits until it may ask again.
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await limiter.stop()
    monkeypatch.undo()
    await limiter.admit(make_claim(team=limits))


async def test_release_makes_room(make: Make) -> None:
    limiter = make()
    limits = Limits(max_concurrent=1)
    first = make_claim(team=limits)
    await limiter.admit(first)
    assert await code_of(limiter, make_claim(team=limits)) is ErrorCode.RATE_LIMITED
    limiter.release(first, 10, 10)
    await limiter.stop()
    await limiter.admit(make_claim(team=limits))


@pytest.mark.parametrize("turns", range(12))
async def test_a_caller_that_leaves_leaves_nothing_behind(make: Make, turns: int) -> None:
    limiter = make()
    claim = make_claim(team=Limits(max_concurrent=1), spend=prepaid(1000))
    asking = asyncio.create_task(limiter.admit(claim))
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await limiter.stop()
    await limiter.admit(make_claim(team=Limits(max_concurrent=1), spend=prepaid(1000)))


async def test_a_caller_that_leaves_does_not_stop_the_load_for_others(
    make: Make, database: Database, eventually: Eventually
) -> None:
    limiter = make()
    database.open.clear()
    leaving = asyncio.create_task(limiter.admit(make_claim(spend=prepaid(10))))
    staying = asyncio.create_task(limiter.admit(make_claim(spend=prepaid(10))))
    await eventually(lambda: database.reads == 1)
    leaving.cancel()
    database.open.set()
    assert isinstance(await staying, Granted)


def test_a_prompt_is_estimated_by_its_size_and_never_beyond_the_context() -> None:
    assert estimate_tokens(4000, 8192) == 1000
    assert estimate_tokens(4_000_000, 8192) == 8192
