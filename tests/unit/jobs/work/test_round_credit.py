"""What further rounds of an answer may cost is held beside what the first ones did."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
import redis
from django.conf import settings as django_settings
from django.utils import timezone

from gateway.models import Team
from inference.events import Usage
from inference.mcp.credit import NextRound
from inference.request import GenerationRequest, Lane, Owner
from inference.transport.connection import connect_sync
from jobs import ledger
from jobs.models import Price
from jobs.pricing import TEMPLATE_TOKENS
from jobs.quota.claims import Ended
from jobs.quota.client import Settler
from jobs.quota.holds import Holds, Terms, Wanted
from jobs.quota.keys import QuotaKeys
from jobs.work.round_credit import RoundCredit
from tests.contracts.requests import make_request
from tests.holders import read_holder

pytestmark = pytest.mark.django_db(transaction=True)

KEY = str(uuid.uuid4())
USED = Usage(prompt_tokens=100, cached_tokens=40, output_tokens=20)
# At a micro-unit for each token: what was used, the next prompt and template, and the answer.
NEXT = 120 + (300 + TEMPLATE_TOKENS) + 50


@pytest.fixture(autouse=True)
def client() -> Iterator[redis.Redis]:
    """Return a client; nothing is known of any team, whose ids other tests may have had."""
    with connect_sync(django_settings.REDIS_URL) as connected:
        for key in connected.scan_iter(f"{django_settings.TANDEM.REDIS_PREFIX}:quota:*"):
            connected.delete(key)
        yield connected


@pytest.fixture(autouse=True)
def _priced() -> None:
    Price.objects.create(
        model="model-under-test",
        effective_from=timezone.now() - timedelta(days=1),
        input_micros_per_mtok=1_000_000,
        cached_input_micros_per_mtok=1_000_000,
        cache_write_micros_per_mtok=1_000_000,
        output_micros_per_mtok=1_000_000,
    )


@pytest.fixture
def credit() -> RoundCredit:
    return RoundCredit()


def team_with(balance_micros: int, **fields: Any) -> Team:
    team = Team.objects.create(name=f"team-{uuid.uuid4()}", prepaid=True, **fields)
    if balance_micros:
        ledger.top_up(team.pk, balance_micros)
    return team


def asked_by(team: Team, **fields: Any) -> GenerationRequest:
    owner = Owner(team_id=team.pk, key_id=KEY)
    request = make_request("Hello.", max_tokens=50)
    return msgspec.structs.replace(request, owner=owner, **fields)


def next_round(request: GenerationRequest, **fields: Any) -> NextRound:
    told: dict[str, Any] = {"used": USED, "prompt_tokens": 300, "context_tokens": 8192} | fields
    return NextRound(request=request, **told)


def begun(client: redis.Redis, team: Team, request: GenerationRequest, hold_micros: int) -> None:
    """Hold what the first round may cost, as the gateway does."""
    prefix = django_settings.TANDEM.REDIS_PREFIX
    Settler(client, prefix).settle(team.pk, ledger.read_state(team.pk))
    wanted = Wanted(request_id=request.id, key_id=KEY, hold_micros=hold_micros)
    Holds(client, prefix).hold(team.pk, Terms(prepaid=True), [wanted])


def held(client: redis.Redis, team: Team) -> int:
    keys = QuotaKeys(django_settings.TANDEM.REDIS_PREFIX).team(team.pk)
    kept = cast("bytes | None", client.hget(keys[0], "team"))
    return int(read_holder(kept)["held"]) if kept else 0


def run(credit: RoundCredit, a_round: NextRound) -> bool:
    return asyncio.run(credit.covers(a_round))


def test_more_is_held_for_a_further_round(client: redis.Redis, credit: RoundCredit) -> None:
    team = team_with(NEXT)
    request = asked_by(team)
    begun(client, team, request, 500)
    assert run(credit, next_round(request))
    assert held(client, team) == NEXT


def test_a_round_that_the_balance_does_not_cover_is_refused_and_holds_nothing_more(
    client: redis.Redis, credit: RoundCredit
) -> None:
    team = team_with(NEXT - 1)
    request = asked_by(team)
    begun(client, team, request, 500)
    assert not run(credit, next_round(request))
    assert held(client, team) == 500


def test_answers_that_run_at_once_do_not_spend_the_same_money(
    client: redis.Redis, credit: RoundCredit
) -> None:
    team = team_with(NEXT + 500)
    first, second = asked_by(team), asked_by(team, id=str(uuid.uuid4()))
    for request in (first, second):
        begun(client, team, request, 500)
    assert run(credit, next_round(first))
    assert not run(credit, next_round(second))


def test_what_is_held_already_is_not_held_twice(client: redis.Redis, credit: RoundCredit) -> None:
    team = team_with(10 * NEXT)
    request = asked_by(team)
    begun(client, team, request, 5 * NEXT)
    assert run(credit, next_round(request))
    assert held(client, team) == 5 * NEXT


def test_a_spend_cap_counts_as_well(client: redis.Redis, credit: RoundCredit) -> None:
    team = team_with(0, daily_spend_cap_micros=NEXT - 1)
    Team.objects.filter(pk=team.pk).update(prepaid=False)
    request = asked_by(team)
    assert not run(credit, next_round(request))
    Team.objects.filter(pk=team.pk).update(daily_spend_cap_micros=NEXT)
    assert run(credit, next_round(request))


def test_a_top_up_meanwhile_counts(client: redis.Redis, credit: RoundCredit) -> None:
    team = team_with(600)
    request = asked_by(team)
    begun(client, team, request, 500)
    ledger.top_up(team.pk, NEXT)
    assert run(credit, next_round(request))


def test_all_of_it_is_let_go_with_the_request(client: redis.Redis, credit: RoundCredit) -> None:
    team = team_with(NEXT)
    request = asked_by(team)
    begun(client, team, request, 500)
    assert run(credit, next_round(request))
    settler = Settler(client, django_settings.TANDEM.REDIS_PREFIX)
    ended = Ended(request_id=request.id, settled=True)
    settler.settle(team.pk, ledger.read_state(team.pk), [ended])
    assert held(client, team) == 0


def test_the_lane_s_price_counts_and_the_context_bounds_the_prompt(
    client: redis.Redis, credit: RoundCredit
) -> None:
    team = team_with(NEXT)
    request = asked_by(team, lane=Lane.BATCH)
    assert run(credit, next_round(request, prompt_tokens=10**9, context_tokens=200))
    # Half the price, unless the operator says otherwise.
    assert held(client, team) == (120 + 200 + 50) // 2


def test_what_costs_nothing_needs_no_money(credit: RoundCredit) -> None:
    Price.objects.all().delete()
    assert run(credit, next_round(asked_by(team_with(0))))


def test_the_services_own_requests_are_nobodys_to_pay(credit: RoundCredit) -> None:
    assert run(credit, next_round(make_request("Hello.")))


def test_a_team_that_is_gone_pays_for_nothing_more(credit: RoundCredit) -> None:
    team = team_with(NEXT)
    request = asked_by(team)
    team.delete()
    assert not run(credit, next_round(request))


def test_nothing_goes_on_where_nobody_can_tell(
    credit: RoundCredit, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = asked_by(team_with(10 * NEXT))
    monkeypatch.setattr("jobs.work.round_credit.load_prices", _away)
    assert not run(credit, next_round(request))


def _away() -> None:
    raise redis.exceptions.ConnectionError
