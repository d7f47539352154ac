"""Records become the same row and the same bill in whichever order they come, or do not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.events import Usage
from inference.request import Lane
from inference.transport.records import FINAL, Completed, Ending, Record
from jobs.ledger import Charge
from jobs.pricing import PriceList, PriceVersion
from jobs.recorder import merge
from jobs.recorder.rows import Row
from tests.records import KEY, NOTHING, USAGE, Said, admitted, closed, completed, new_id, unserved

AT_S = 1_785_000_000.0
AT = datetime.fromtimestamp(AT_S, UTC)
ID = new_id()
OTHER_ENGINE = new_id()
PRICES = PriceList(
    [
        PriceVersion(
            id=number,
            model=model,
            effective_from=AT - timedelta(days=1),
            input_micros_per_mtok=1_000_000,
            cached_input_micros_per_mtok=1_000_000,
            cache_write_micros_per_mtok=1_000_000,
            output_micros_per_mtok=1_000_000,
            flex_permille=500,
            background_permille=500,
            batch_permille=500,
        )
        for number, model in ((1, "m"), (2, "other"))
    ]
)


def make_row(*records: Record) -> Row:
    """Merge records into a new row, without ever settling it."""
    row = merge.begin(ID, records[0])
    for record in records:
        assert merge.merge(row, record)
    return row


def bill(*records: Record) -> Charge | None:
    """Return what is posted when nothing more comes."""
    row = make_row(*records)
    if not merge.is_complete(row):
        merge.give_up(row)
    return merge.charge(row, PRICES)


def settle(row: Row, *, given_up: bool = False) -> list[Charge]:
    """Do to a row what the recorder does after a batch, or in a sweep."""
    if given_up and row.settled_at is None:
        merge.give_up(row)
    elif not merge.is_complete(row) or row.cost_micros is not None:
        return []
    charge = merge.charge(row, PRICES)
    row.settled_at = AT
    row.cost_micros = charge.cost_micros if charge else None
    return [charge] if charge else []


endings = st.sampled_from(Ending)
tokens = st.integers(0, 50)
usages = st.builds(
    lambda plain, cached, written, output: Usage(
        prompt_tokens=plain + cached + written,
        cached_tokens=cached,
        cache_written_tokens=written,
        output_tokens=output,
    ),
    *[tokens] * 4,
)


@st.composite
def histories(draw: st.DrawFn) -> list[Record]:
    """What the processes that serve one request may say of it."""
    taken = draw(st.integers(0, 3))
    records: list[Record] = [admitted(ID, AT_S)]
    # Which attempt is the first of its fallback, if that got it.
    moved = draw(st.none() | st.integers(0, taken))
    if moved is not None:
        handed_over = {"model": "other", "requested_model": "m", "body": None}
        records.append(admitted(ID, AT_S, attempts=moved + 1, **handed_over))
    for attempt in range(taken):
        fields: dict[str, Any] = {"engine_id": new_id(), "host": f"host-{attempt}"}
        fields["model"] = "m" if moved is None or attempt < moved else "other"
        fields |= {"ending": draw(endings), "usage": draw(usages), "attempt": attempt}
        records.append(completed(ID, AT_S + attempt, message=f"message-{attempt}", **fields))
    # The end names no model where it is the one that was asked for.
    model = draw(st.sampled_from(["m", ""])) if moved is None else "other"
    last, attempts = records[-1], taken if moved is None else max(taken, moved + 1)
    if isinstance(last, Completed) and draw(st.booleans()):
        said: dict[str, Any] = {"engine_id": last.engine_id, "attempts": attempts, "model": model}
        ending = draw(st.sampled_from([*FINAL, Ending.ENGINE_LOST]))
        if last.ending in FINAL:
            said["usage"] = last.usage
        records.append(closed(ID, AT_S + 5, ending=ending, **said))
    else:
        # The last attempt is still in the queue, or its engine could not say that it has it.
        waiting = draw(st.integers(attempts, attempts + 1) if taken else st.integers(0, 1))
        ending = draw(st.sampled_from([Ending.CANCELLED, Ending.TIMEOUT, Ending.FAILED]))
        records.append(unserved(ID, AT_S + 5, attempts=waiting, ending=ending, model=model))
    return records


def replay(records: list[Record], batches: list[bool]) -> tuple[Row, list[Charge]]:
    """Merge records one after another, settling between them where `batches` says so."""
    row = merge.begin(ID, records[0])
    charges = []
    for record, ends_batch in zip(records, batches, strict=True):
        merge.merge(row, record)
        if ends_batch:
            charges += settle(row)
    charges += settle(row)
    charges += settle(row, given_up=True)
    row.settled_at = None
    return row, charges


@given(histories(), st.data())
def test_neither_order_nor_repeats_matter_and_the_bill_is_by_the_rules(
    history: list[Record], data: st.DataObject
) -> None:
    heard = data.draw(st.lists(st.sampled_from(history), min_size=1, unique_by=id))
    again = data.draw(st.permutations(heard * 2))
    batches = data.draw(st.lists(st.booleans(), min_size=len(again), max_size=len(again)))
    plain, charges = replay(heard, [False] * len(heard))
    row, charges_again = replay(again, batches)
    assert row == plain
    assert charges_again == charges
    expected = Said(heard).bill
    if expected is None:
        assert charges == []
        assert row.cost_micros is None
    else:
        (charge,) = charges
        cost = expected.usage.prompt_tokens + expected.usage.output_tokens if expected.paid else 0
        assert (charge.usage, charge.cost_micros) == (
            msgspec.structs.replace(expected.usage, thinking_tokens=charge.usage.thinking_tokens),
            cost,
        )


def test_a_row_has_everything_that_was_said() -> None:
    row = make_row(admitted(ID, AT_S), completed(ID, AT_S), closed(ID, AT_S))
    assert (row.created_at, row.deadline_at) == (AT, AT + timedelta(seconds=600))
    assert (row.team_id, row.team_name, row.key_id, row.key_name) == (1, "blue", KEY, "laptop")
    assert (row.client, row.address, row.trace_id) == ("anthropic/1.0", "127.0.0.1", "ab")
    assert (row.session_id, row.type, row.dialect) == ("s1", "standalone", "anthropic")
    assert (row.lane, row.model, row.streamed, row.max_tokens) == ("realtime", "m", True, 100)
    assert (row.ignored_fields, row.body_bytes) == (["speed"], 13)
    assert (row.body_digest, row.answer_digest) == ("\\x" + "62" * 32, "\\x" + "61" * 32)
    assert (row.engine_host, row.attempts) == ("host", 1)
    assert row.taken_at == AT + timedelta(seconds=0.125)
    assert row.first_token_at == AT + timedelta(seconds=0.375)
    assert row.engine_ended_at == AT + timedelta(seconds=0.5)
    assert row.closed_at == AT + timedelta(seconds=0.75)
    assert (row.status, row.ending, row.detail, row.error) == ("completed", "finished", "end", "")
    assert (row.input_tokens, row.cached_tokens, row.cache_written_tokens) == (100, 20, 10)
    assert (row.output_tokens, row.thinking_tokens) == (30, 5)


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        (Ending.FINISHED, "completed"),
        (Ending.CANCELLED, "cancelled"),
        (Ending.TIMEOUT, "failed"),
        (Ending.FAILED, "failed"),
        (Ending.ENGINE_LOST, "failed"),
    ],
)
def test_the_status_follows_the_ending(ending: Ending, status: str) -> None:
    row = make_row(admitted(ID), closed(ID, ending=ending, detail="why", message="because"))
    assert (row.status, row.ending, row.detail, row.error) == (status, ending, "why", "because")


@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.CANCELLED, Ending.TIMEOUT])
def test_what_was_used_until_the_end_is_billed(ending: Ending) -> None:
    charge = bill(admitted(ID, AT_S), completed(ID, ending=ending), closed(ID, ending=ending))
    assert charge is not None
    assert (charge.cost_micros, charge.price_id, charge.reason) == (130, 1, "")
    assert (charge.team_id, charge.key_id, charge.usage) == (1, KEY, USAGE)


@pytest.mark.parametrize("engine_says", [Ending.FAILED, Ending.GATEWAY_LOST])
def test_what_failed_is_counted_and_not_billed(engine_says: Ending) -> None:
    charge = bill(admitted(ID), completed(ID, ending=engine_says))
    assert charge is not None
    assert (charge.cost_micros, charge.price_id, charge.usage) == (0, None, USAGE)
    assert charge.reason == f"waived: {engine_says}"


def test_a_failure_outweighs_what_the_other_one_says() -> None:
    failed = completed(ID, ending=Ending.FAILED, message="broken")
    left = closed(ID, ending=Ending.CANCELLED)
    for row in (make_row(admitted(ID), failed, left), make_row(admitted(ID), left, failed)):
        assert (row.status, row.ending, row.error) == ("failed", "failed", "broken")


def test_an_answer_that_the_gateway_lost_is_not_billed_though_the_engine_finished_it() -> None:
    charge = bill(admitted(ID), completed(ID), closed(ID, ending=Ending.ENGINE_LOST))
    assert charge is not None
    assert (charge.cost_micros, charge.reason) == (0, "waived: engine_lost")


def test_a_finished_answer_is_billed_by_the_gateways_word_if_the_engines_is_lost() -> None:
    charge = bill(admitted(ID, AT_S), closed(ID, AT_S))
    assert charge is not None
    assert charge.cost_micros == 130


def test_a_cancelled_one_is_not_billed_if_nobody_knows_what_it_used() -> None:
    charge = bill(admitted(ID), closed(ID, ending=Ending.CANCELLED))
    assert charge is not None
    assert (charge.cost_micros, charge.reason) == (0, "waived: engine_lost")
    assert charge.usage == msgspec.structs.replace(NOTHING, prompt_tokens=100)


def test_what_no_engine_took_has_no_entry_until_an_engine_says_otherwise() -> None:
    row = make_row(admitted(ID), unserved(ID, ending=Ending.CANCELLED))
    assert merge.is_complete(row)
    assert settle(row) == []
    assert row.settled_at is not None
    assert merge.merge(row, completed(ID, ending=Ending.CANCELLED))
    assert [charge.cost_micros for charge in settle(row)] == [130]


def test_a_gateway_of_which_nothing_was_heard_is_lost() -> None:
    row = make_row(admitted(ID))
    charge = bill(admitted(ID))
    merge.give_up(row)
    assert (row.status, row.ending, row.detail) == ("failed", "gateway_lost", "gateway_lost")
    assert row.error == "The gateway ended without a word."
    assert charge is not None
    assert (charge.cost_micros, charge.reason) == (0, "waived: gateway_lost")


def test_a_row_that_is_billed_takes_nothing_more() -> None:
    row = make_row(admitted(ID), completed(ID), closed(ID))
    settle(row)
    before = msgspec.structs.replace(row)
    assert not merge.merge(row, closed(ID, ending=Ending.FAILED))
    assert row == before


def test_it_is_priced_as_of_its_admission() -> None:
    early = bill(admitted(ID, AT_S - 2 * 86_400), completed(ID, AT_S), closed(ID, AT_S))
    assert early is not None
    assert (early.cost_micros, early.price_id) == (0, None)


def test_lanes_have_their_factors() -> None:
    charge = bill(
        admitted(ID, AT_S, lane=Lane.FLEX), completed(ID, AT_S, lane=Lane.FLEX), closed(ID)
    )
    assert charge is not None
    assert (charge.lane, charge.cost_micros) == ("flex", 65)


def test_what_callers_send_fits_the_columns() -> None:
    long = "x\0" * 3000
    row = make_row(
        admitted(ID, client=long, session_id=long, ignored=(long,), max_tokens=2**64 - 1),
        closed(ID, message=long),
    )
    assert (len(row.client), len(row.session_id), len(row.error)) == (100, 50, 1000)
    assert (len(row.ignored_fields[0]), row.max_tokens) == (100, 2**63 - 1)
    assert "\0" not in row.client + row.error


@pytest.mark.parametrize(
    "record",
    [
        admitted(ID, 1e18),
        admitted(ID, float("nan")),
        completed(ID, usage=msgspec.structs.replace(USAGE, cached_tokens=101)),
        completed(ID, usage=msgspec.structs.replace(USAGE, cached_tokens=-30)),
    ],
)
def test_what_cannot_be_is_refused(record: Record) -> None:
    with pytest.raises((ValueError, OverflowError)):
        make_row(record)


def test_only_ids_that_are_uuids_are_taken() -> None:
    canonical = "0192f0c1-2345-7abc-8def-0123456789ab"
    assert merge.request_id(admitted(canonical.upper())) == canonical
    with pytest.raises(ValueError, match="hexadecimal"):
        merge.request_id(admitted("no-uuid"))


HANDED_OVER = admitted(ID, AT_S, model="other", requested_model="m", attempts=2, body=None)


def test_the_fallback_is_the_model_and_the_other_the_one_that_was_asked_for() -> None:
    row = make_row(
        HANDED_OVER,
        completed(ID, AT_S, attempt=1, model="other"),
        admitted(ID, AT_S),
        completed(ID, AT_S, attempt=0, ending=Ending.FAILED, usage=NOTHING, message="away"),
        closed(ID, AT_S, attempts=2, model="other"),
    )
    assert (row.model, row.requested_model, row.attempts) == ("other", "m", 2)
    assert (row.status, row.error) == ("completed", "")
    charge = merge.charge(row, PRICES)
    assert charge is not None
    assert (charge.model, charge.price_id, charge.cost_micros) == ("other", 2, 130)


def test_what_is_settled_before_the_fallback_is_told_of_is_billed_as_its_own() -> None:
    row = make_row(
        admitted(ID, AT_S),
        completed(ID, AT_S, attempt=1, model="other"),
        closed(ID, AT_S, attempts=2, model="other"),
    )
    assert merge.is_complete(row)
    assert (row.model, row.requested_model) == ("other", "m")


def test_an_end_that_is_told_first_and_names_no_model_is_billed_as_what_was_asked_for() -> None:
    told: list[Record] = [
        closed(ID, AT_S, attempts=2),
        completed(ID, AT_S, ending=Ending.ENGINE_LOST),
    ]
    asked = admitted(ID, AT_S)
    for records in ([told[0], asked], [*told, asked], told, told[::-1]):
        row = make_row(*records)
        assert (row.model, row.requested_model) == ("m", "")
    charge = bill(*told, asked, completed(ID, AT_S, attempt=1))
    assert charge is not None
    assert (charge.price_id, charge.cost_micros) == (1, 130)


@pytest.mark.parametrize("others", [[admitted(ID, AT_S)], []])
def test_a_closing_that_names_no_model_is_about_the_one_that_was_asked_for(
    others: list[Record],
) -> None:
    said = [completed(ID, AT_S, attempt=n) for n in range(2)]
    for order in permutations([*others, *said, closed(ID, AT_S, attempts=2)]):
        row = make_row(*order)
        assert (row.model, row.requested_model) == ("m", "")


def test_a_failure_before_the_fallback_settles_nothing() -> None:
    failed = completed(ID, AT_S, ending=Ending.FAILED, usage=NOTHING, message="away")
    row = make_row(admitted(ID, AT_S), failed, HANDED_OVER)
    assert row.engine_ended_at is None
    assert (row.status, row.error) == ("running", "")
    assert not merge.is_complete(row)


def test_who_leaves_the_fallback_pays_for_what_that_did() -> None:
    charge = bill(
        admitted(ID, AT_S),
        completed(ID, AT_S, ending=Ending.FAILED, usage=NOTHING),
        HANDED_OVER,
        completed(ID, AT_S, attempt=1, model="other", ending=Ending.CANCELLED),
        closed(ID, AT_S, attempts=2, model="other", ending=Ending.CANCELLED),
    )
    assert charge is not None
    assert (charge.model, charge.usage, charge.cost_micros) == ("other", USAGE, 130)


def test_a_fallback_that_fails_too_costs_nothing_and_the_first_error_is_told() -> None:
    second = completed(ID, AT_S, attempt=1, model="other", ending=Ending.TIMEOUT, message="slow")
    told = closed(ID, AT_S, attempts=2, model="other", ending=Ending.FAILED, message="away")
    for records in ((second, told), (told, second)):
        row = make_row(admitted(ID, AT_S), HANDED_OVER, *records)
        assert (row.model, row.status, row.error) == ("other", "failed", "away")
        charge = merge.charge(row, PRICES)
        assert charge is not None
        assert charge.cost_micros == 0
