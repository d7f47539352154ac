"""Requests that are let in now and run later."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from gateway.accounting.desk import Desk, Visit
from gateway.config import Config
from gateway.http.request import ApiRequest
from gateway.keys import Principal
from inference.errors import ErrorCode, TandemError
from inference.request import Lane
from jobs.pricing import PriceList
from jobs.quota.claims import Claim, Granted, Limits
from tests.contracts.requests import make_entry, make_request
from tests.unit.jobs.prices import make_price

BODY = b'{"input":"hi"}'


class Limiter:
    """Notes who asks; `error` is its answer if there is one."""

    def __init__(self) -> None:
        self.admitted: list[Claim] = []
        self.withdrawn: list[Claim] = []
        self.error: TandemError | None = None

    async def admit(self, claim: Claim) -> Granted:
        if self.error:
            raise self.error
        self.admitted.append(claim)
        return Granted()

    def withdraw(self, claim: Claim) -> None:
        self.withdrawn.append(claim)


@pytest.fixture
def visit() -> Visit:
    limits = Limits(requests_per_minute=5, input_tokens_per_minute=10, max_concurrent=1)
    return Visit(
        asked=ApiRequest({"headers": []}, BODY),
        principal=Principal(
            key_id="k1", key_name="k", team_id=7, team_name="t", key_limits=limits, prepaid=True
        ),
        entry=make_entry(),
        prompt=msgspec.structs.replace(make_request("hi"), lane=Lane.BACKGROUND),
        dialect="responses",
        stream=False,
        ignored=(),
    )


def desk(limiter: Limiter) -> Desk:
    return Desk(Config(), limiter, None)  # type: ignore[arg-type]


async def test_it_counts_as_a_request_and_keeps_nothing(
    no_settings: pytest.MonkeyPatch, visit: Visit
) -> None:
    limiter = Limiter()
    announced = await desk(limiter).announce(visit, PriceList([make_price()]))
    (claim,) = limiter.admitted
    assert limiter.withdrawn == [claim]
    assert claim.key == Limits(requests_per_minute=5)
    assert claim.input_tokens == 0
    assert claim.spend is not None
    assert announced.hold_micros == claim.spend.hold_micros > 0
    assert announced.body_digest == hashlib.sha256(BODY).digest()


async def test_without_money_it_is_refused(no_settings: pytest.MonkeyPatch, visit: Visit) -> None:
    limiter = Limiter()
    limiter.error = TandemError(ErrorCode.BALANCE_EXHAUSTED, "no")
    with pytest.raises(TandemError, match="no"):
        await desk(limiter).announce(visit, PriceList([make_price()]))
    assert limiter.withdrawn == []
