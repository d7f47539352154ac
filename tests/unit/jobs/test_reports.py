"""What is asked of the trail and the ledger."""

from __future__ import annotations

import uuid
import zlib
from datetime import UTC, date, datetime, timedelta

import msgspec
import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from inference.errors import ErrorCode, TandemError
from inference.events import Usage
from inference.request import TextPart, ThinkingPart, ToolCallPart
from jobs import ledger, reports
from jobs.models import Account, KeyUse, LedgerEntry, Price, RequestBody, UsageDay
from tests.unit.jobs.trail import LONG_AGO, make_row

pytestmark = pytest.mark.django_db

KEY = uuid.UUID(int=7)
DAY = date(2026, 8, 7)


def use(day: date, team_id: int = 1, **fields: object) -> None:
    counts = dict.fromkeys(reports.Usage.__struct_fields__, 1)
    empty = {"key_id": KEY, "model": "m", "lane": "realtime", **counts}
    UsageDay.objects.create(team_id=team_id, day=day, **(empty | fields))


def charge(request_id: uuid.UUID, price_id: int | None) -> None:
    one = ledger.Charge(
        request_id=str(request_id),
        team_id=1,
        key_id=str(KEY),
        model="m",
        lane="realtime",
        usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1),
        cost_micros=5,
        price_id=price_id,
    )
    ledger.charge([one], timezone.now())


def add_price(effective_from: datetime, output: int = 1, model: str = "m") -> Price:
    return Price.objects.create(
        model=model,
        effective_from=effective_from,
        input_micros_per_mtok=1,
        cached_input_micros_per_mtok=1,
        cache_write_micros_per_mtok=1,
        output_micros_per_mtok=output,
    )


def test_requests_of_one_moment_have_an_order_and_no_page_shows_one_twice() -> None:
    rows = {make_row().id for _ in range(5)}
    wanted = reports.ActivityFilter(team_id=1)
    pages = [reports.page_of_requests(wanted, page, 2).items for page in (1, 2, 3)]
    seen = [row.id for page in pages for row in page]
    assert set(seen) == rows
    assert seen == sorted(seen, reverse=True)


def test_a_list_is_counted_so_far_that_one_sees_whether_there_is_more(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    monkeypatch.setattr(reports, "COUNTED_AT_MOST", 2)
    for _ in range(5):
        make_row()
    rows = reports.find_requests(reports.ActivityFilter(team_id=1))
    with django_assert_num_queries(1) as queries:
        assert reports.capped_count(rows) == 3
    assert "LIMIT 3" in queries[0]["sql"]


def test_the_last_page_that_is_counted_can_be_read_and_the_next_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports, "COUNTED_AT_MOST", 4)
    for _ in range(6):
        make_row()
    wanted = reports.ActivityFilter(team_id=1)
    assert len(reports.page_of_requests(wanted, 2, 3).items) == 3
    with pytest.raises(TandemError, match="set created_before") as caught:
        reports.page_of_requests(wanted, 3, 3)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_nothing_is_counted_where_the_page_tells_how_many_there_are(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    make_row()
    with django_assert_num_queries(1):
        page = reports.page_of_requests(reports.ActivityFilter(team_id=1), 1, 2)
    assert (page.total, page.total_is_capped) == (1, False)


def test_a_request_is_found_for_its_own_team_only() -> None:
    row = make_row()
    assert reports.find_request(1, row.id) == row
    assert reports.find_request(2, row.id) is None


def test_models_are_walked_in_one_query_each_named_once(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    for model in ("b", "a", "b", "A", "vendor/c"):
        make_row(model=model)
    make_row(team_id=2, model="z")
    with django_assert_num_queries(1):
        assert set(reports.models_of(1)) == {"A", "a", "b", "vendor/c"}
    assert reports.models_of(3) == []


def test_what_is_kept_of_a_body_is_given_back_whole() -> None:
    parts = (ThinkingPart("hm"), TextPart("Hi"), ToolCallPart(id="1", name="f", arguments="{}"))
    row = make_row()
    assert reports.kept_body(row.id) == reports.KeptBody()
    RequestBody.objects.create(
        record_id=row.id,
        created_at=LONG_AGO,
        body=zlib.compress(b'{"a":1}'),
        answer=zlib.compress(msgspec.msgpack.encode(parts)),
    )
    assert reports.kept_body(row.id) == reports.KeptBody(body=b'{"a":1}', answer=parts)
    RequestBody.objects.update(body=None)
    assert reports.kept_body(row.id) == reports.KeptBody(answer=parts)


def test_the_price_of_a_request_is_the_one_that_it_was_billed_by() -> None:
    old, _ = add_price(LONG_AGO, output=3), add_price(LONG_AGO + timedelta(days=1), output=4)
    billed, free = uuid.uuid4(), uuid.uuid4()
    charge(billed, old.pk)
    charge(free, None)
    version = reports.billed_price(billed)
    assert version is not None
    assert version.output_micros_per_mtok == 3
    assert reports.billed_price(free) is None
    assert reports.billed_price(uuid.uuid4()) is None


def test_days_without_usage_are_there_and_both_ends_count() -> None:
    for offset in (-1, 0, 2, 3):
        use(DAY + timedelta(days=offset))
    use(DAY, team_id=2)
    last = DAY + timedelta(days=2)
    days = reports.usage_by_day(reports.UsageFilter(team_id=1, first=DAY, last=last))
    assert [(one.day, one.requests) for one in days] == [
        (DAY, 1),
        (DAY + timedelta(days=1), 0),
        (last, 1),
    ]
    assert all(type(one.cost_micros) is int for one in days)


def test_usage_is_added_up_over_keys_and_days_for_each_model_and_lane() -> None:
    use(DAY)
    use(DAY, key_id=uuid.UUID(int=8))
    use(DAY + timedelta(days=1))
    use(DAY, lane="batch")
    wanted = reports.UsageFilter(team_id=1, first=DAY, last=DAY + timedelta(days=1))
    by_model = reports.usage_by_model(wanted)
    assert [(one.model, one.lane, one.requests) for one in by_model] == [
        ("m", "realtime", 3),
        ("m", "batch", 1),
    ]
    total = reports.total_usage(by_model)
    assert (total.requests, total.total_tokens, total.cost_micros) == (4, 8, 4)
    assert reports.total_usage([]) == reports.Usage()


def test_large_sums_stay_exact() -> None:
    for key in range(3):
        use(DAY, key_id=uuid.UUID(int=key), cost_micros=2**53 - 1)
    wanted = reports.UsageFilter(team_id=1, first=DAY, last=DAY)
    assert reports.total_usage(reports.usage_by_model(wanted)).cost_micros == 3 * (2**53 - 1)


def test_the_price_in_force_is_the_last_that_has_begun() -> None:
    now = datetime(2026, 8, 7, tzinfo=UTC)
    for days, output in ((-2, 1), (0, 2), (1, 3)):
        add_price(now + timedelta(days=days), output)
    add_price(now + timedelta(days=1), model="later")
    prices = reports.prices_in_force(["m", "later", "free"], now)
    assert {model: price.output_micros_per_mtok for model, price in prices.items()} == {"m": 2}


def test_entries_are_read_backwards_from_a_number() -> None:
    for number in range(4):
        ledger.top_up(1, number + 1)
    ledger.top_up(2, 9)
    assert [entry.number for entry in reports.entries_of(1, 2)] == [4, 3]
    assert [entry.number for entry in reports.entries_of(1, 9, before=3)] == [2, 1]


def test_a_team_without_an_account_has_a_balance_of_zero() -> None:
    assert reports.balance_micros(1) == 0
    ledger.top_up(1, 5)
    assert reports.balance_micros(1) == 5


def test_keys_that_were_never_used_are_left_out() -> None:
    KeyUse.objects.create(key_id=KEY, last_used_at=LONG_AGO)
    assert reports.last_used([KEY, uuid.uuid4()]) == {KEY: LONG_AGO}


def book(number: int, made_at: datetime) -> int:
    """Make an entry of team 1 as of a moment, and return its id."""
    Account.objects.get_or_create(team_id=1)
    entry = LedgerEntry.objects.create(
        account_id=1,
        number=number,
        kind="topup",
        reference=str(number),
        amount_micros=1,
        balance_after_micros=number,
        created_at=made_at,
    )
    return entry.pk


def test_entries_between_two_moments_are_found_by_their_ids() -> None:
    start = datetime(2026, 8, 7, tzinfo=UTC)
    ids = [book(hour + 1, start + timedelta(hours=hour)) for hour in range(6)]
    at = {hour: start + timedelta(hours=hour, minutes=30) for hour in range(-1, 6)}
    assert reports.entry_ids_between(at[1], at[3]) == (ids[2], ids[4])
    assert reports.entry_ids_between(None, at[3]) == (0, ids[4])
    assert reports.entry_ids_between(at[1], None) == (ids[2], ids[-1] + 1)
    assert reports.entry_ids_between(at[-1], at[5]) == (0, ids[-1] + 1)
    assert reports.entry_ids_between(at[5], None) == (ids[-1] + 1, ids[-1] + 1)


def test_a_minute_is_allowed_for_entries_that_were_written_late() -> None:
    noon = datetime(2026, 8, 7, 12, tzinfo=UTC)
    late, on_time = book(1, noon + timedelta(seconds=20)), book(2, noon)
    first, last = reports.entry_ids_between(noon, noon + timedelta(seconds=10))
    assert first <= late
    assert last > on_time


def test_a_ledger_without_entries_has_none_between_any_moments() -> None:
    first, last = reports.entry_ids_between(timezone.now(), None)
    assert not LedgerEntry.objects.filter(pk__gte=first, pk__lt=last).exists()
