"""The chain of seals, and what verification sees of every way to alter what is sealed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from pytest_django import Settings

from jobs import seals
from jobs.models import AuditSeal, RequestBody, RequestRecord
from jobs.seals import SEALED_FIELDS, canonical, seal_batch, seal_settled
from jobs.verification import Verification
from tests.unit.jobs.trail import LONG_AGO, keep_body, make_row, new_id, seal_all, tamper

pytestmark = pytest.mark.django_db

DOCS = (Path(__file__).resolve().parents[3] / "docs" / "audit.md").read_text(encoding="utf-8")


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[RequestRecord]:
    """Seven rows under three seals, the third not full."""
    monkeypatch.setattr(seals, "MAX_ROWS", 3)
    made = [make_row(created_at=LONG_AGO + timedelta(seconds=number)) for number in range(7)]
    seal_all()
    return list(RequestRecord.objects.filter(pk__in=[row.pk for row in made]).order_by("id"))


def found(since: int = 1, head: bytes | None = None) -> list[tuple[int, UUID | None, str]]:
    return [
        (finding.number, finding.row_id, finding.what)
        for checked in Verification(since).run(head)
        for finding in checked.findings
    ]


def test_every_field_of_a_row_is_sealed() -> None:
    fields = {field.attname for field in RequestRecord._meta.concrete_fields}
    assert {*SEALED_FIELDS, "seal_id"} == fields
    assert len(SEALED_FIELDS) == len(set(SEALED_FIELDS))


def test_the_docs_list_the_fields_in_their_order() -> None:
    listed = re.search(r"^( {6}id created_at [a-z_ \n]+?requested_model)$", DOCS, re.MULTILINE)
    assert listed is not None
    assert tuple(listed[1].split()) == SEALED_FIELDS


def test_settled_rows_are_sealed_in_batches_and_in_order(rows: list[RequestRecord]) -> None:
    assert [row.seal_id for row in rows] == [1, 1, 1, 2, 2, 2, 3]
    assert list(AuditSeal.objects.order_by("number").values_list("number", "rows")) == [
        (1, 3),
        (2, 3),
        (3, 1),
    ]
    assert found() == []


def test_rows_that_are_open_or_settled_just_now_wait() -> None:
    make_row(settled_at=None)
    make_row(settled_at=timezone.now())
    assert seal_batch(timezone.now()) == 0
    assert not AuditSeal.objects.exists()


def test_sealing_goes_on_until_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "MAX_ROWS", 2)
    for _ in range(5):
        make_row()
    assert seal_settled(patience_s=60) == 5
    assert seal_settled(patience_s=60) == 0
    assert not RequestRecord.objects.filter(seal=None).exists()
    assert AuditSeal.objects.count() == 3


def test_sealing_stops_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "MAX_ROWS", 2)
    for _ in range(5):
        make_row()
    assert seal_settled(patience_s=0) == 2


def test_an_auditor_can_recompute_it_all_without_this_code() -> None:
    """As docs/audit.md describes it."""
    row = make_row(
        cost_micros=0, thinking_tokens=0, trace_id="", ignored_fields=[], deadline_at=None
    )
    seal_all()
    seal = AuditSeal.objects.get()
    said = {
        "id": str(row.id),
        "created_at": 1772366400123456,
        "team_id": 1,
        "team_name": "Größe",
        "key_id": "00000000-0000-0000-0000-000000000007",
        "key_name": 'a "quoted" key',
        "client": "anthropic/1.0",
        "address": "127.0.0.1",
        "session_id": "s1",
        "type": "stream",
        "dialect": "messages",
        "lane": "realtime",
        "model": "m",
        "streamed": True,
        "max_tokens": 100,
        "body_bytes": 321,
        "body_digest": base64.b64encode(hashlib.sha256(b"body").digest()).decode(),
        "engine_id": "00000000-0000-0000-0000-000000000009",
        "engine_host": "host",
        "attempts": 1,
        "taken_at": 1772366400128456,
        "first_token_at": 1772366400173456,
        "engine_ended_at": 1772366401123456,
        "closed_at": 1772366401123457,
        "status": "completed",
        "ending": "finished",
        "detail": "end_turn",
        "error": "none",
        "answer_digest": base64.b64encode(hashlib.sha256(b"answer").digest()).decode(),
        "input_tokens": 30,
        "cached_tokens": 10,
        "cache_written_tokens": 5,
        "output_tokens": 20,
        "cost_micros": 0,
        "settled_at": 1772366402123456,
    }
    text = json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()
    leaves = row.id.bytes + hashlib.sha256(text).digest()
    assert bytes(seal.leaves) == leaves
    assert bytes(seal.rows_digest) == hashlib.sha256(leaves).digest()
    key = hashlib.sha256(b"tandem.audit.seal" + settings.SECRET_KEY.encode()).digest()
    made_at = (seal.created_at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    message = bytes(32) + (1).to_bytes(8) + (1).to_bytes(4) + bytes(seal.rows_digest)
    message += made_at.to_bytes(8)
    assert bytes(seal.digest) == hmac.digest(key, message, "sha256")


def test_no_two_rows_say_the_same() -> None:
    """Zero and unknown are two things, and so are text and nothing in their neighbours."""
    row = dict.fromkeys(SEALED_FIELDS, None) | {"id": UUID(int=1), "cost_micros": 0}
    forms = [
        canonical(list((row | changed).values()))
        for changed in (
            {},
            {"cost_micros": None},
            {"client": "x"},
            {"address": "x"},
            {"ignored_fields": ["a", "b"]},
            {"ignored_fields": ["a,b"]},
        )
    ]
    assert len(set(forms)) == len(forms)


OTHER_VALUES: dict[str, Any] = {
    "UUIDField": UUID(int=12345),
    "DateTimeField": datetime(2001, 1, 1, tzinfo=UTC),
    "BigIntegerField": 987_654,
    "PositiveBigIntegerField": 987_654,
    "PositiveSmallIntegerField": 321,
    "CharField": "other",
    "BinaryField": b"other",
    "ArrayField": ["other"],
}


@profile(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_change_of_any_field_of_any_row_is_found_and_nothing_else(
    rows: list[RequestRecord], data: st.DataObject
) -> None:
    row = data.draw(st.sampled_from(rows))
    name = data.draw(st.sampled_from([name for name in SEALED_FIELDS if name != "id"]))
    field = RequestRecord._meta.get_field(name)
    values = [not row.streamed] if name == "streamed" else [OTHER_VALUES[field.get_internal_type()]]
    values += [None] if field.null and getattr(row, name) is not None else []
    value = data.draw(st.sampled_from(values))
    with transaction.atomic():
        change = f"UPDATE jobs_requestrecord SET {name} = %s WHERE id = %s"  # noqa: S608
        tamper(change, value, row.id)
        assert found() == [(row.seal_id, row.id, "was changed")]
        transaction.set_rollback(True)
    assert found() == []


def test_a_row_that_was_deleted_is_found(rows: list[RequestRecord]) -> None:
    tamper("DELETE FROM jobs_requestrecord WHERE id = %s", rows[4].id)
    assert found() == [(2, rows[4].id, "is missing: deleted, or taken from its seal")]


def test_a_row_that_was_taken_from_its_seal_is_found(rows: list[RequestRecord]) -> None:
    tamper("UPDATE jobs_requestrecord SET seal_id = NULL WHERE id = %s", rows[0].id)
    assert found() == [(1, rows[0].id, "is missing: deleted, or taken from its seal")]


def test_a_row_that_was_put_under_an_old_seal_is_found(rows: list[RequestRecord]) -> None:
    added = make_row(seal_id=2)
    assert found() == [(2, added.id, "was added after it was sealed")]


def test_a_row_that_changed_its_id_is_found_under_both(rows: list[RequestRecord]) -> None:
    other = new_id()
    tamper("UPDATE jobs_requestrecord SET id = %s WHERE id = %s", other, rows[1].id)
    assert {(number, row_id) for number, row_id, _ in found()} == {(1, rows[1].id), (1, other)}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("number = 9", "is missing"),
        ("created_at = now()", "was changed: its signature does not fit"),
        ("rows = 2", "was changed: its signature does not fit"),
        ("rows_digest = 'x'", "was changed: its signature does not fit"),
        ("digest = 'x'", "was changed: its signature does not fit"),
        ("leaves = 'x'", "was changed: its list of rows"),
        ("pruned_at = now()", "was not pruned by retention"),
    ],
)
def test_a_change_of_a_seal_is_found(rows: list[RequestRecord], change: str, what: str) -> None:
    if change.startswith("number"):
        tamper("UPDATE jobs_requestrecord SET seal_id = NULL WHERE seal_id = 2")
    statement = f"UPDATE jobs_auditseal SET {change} WHERE number = 2"  # noqa: S608
    tamper(statement, table="jobs_auditseal")
    first, *_ = found()
    assert first == (2, None, what)


def test_a_seal_that_was_deleted_with_its_rows_is_found(rows: list[RequestRecord]) -> None:
    tamper("DELETE FROM jobs_requestrecord WHERE seal_id <= 2")
    tamper("DELETE FROM jobs_auditseal WHERE number <= 2", table="jobs_auditseal")
    assert found() == [(1, None, "is missing, and all to 2")]


def test_a_seal_before_the_first_is_found(rows: list[RequestRecord]) -> None:
    AuditSeal.objects.create(
        number=0, created_at=LONG_AGO, rows=0, leaves=b"", rows_digest=b"", digest=b""
    )
    assert found() == [(0, None, "was added")]


def test_a_chain_that_was_cut_is_found_by_its_noted_head(rows: list[RequestRecord]) -> None:
    head = bytes(AuditSeal.objects.get(number=3).digest)
    assert found(head=head) == []
    tamper("DELETE FROM jobs_requestrecord WHERE seal_id = 3")
    tamper("DELETE FROM jobs_auditseal WHERE number = 3", table="jobs_auditseal")
    assert found() == []
    what = "the noted head is not in the chain after it: its end was cut off or rewritten"
    assert found(head=head) == [(2, None, what)]


def test_a_head_that_was_noted_earlier_stays_good(rows: list[RequestRecord]) -> None:
    head = bytes(AuditSeal.objects.get(number=2).digest)
    make_row()
    seal_all()
    assert found(head=head) == []


def test_verification_can_begin_in_the_middle(rows: list[RequestRecord]) -> None:
    tamper("DELETE FROM jobs_requestrecord WHERE seal_id = 1")
    assert found(since=2) == []
    assert found(since=9) == [(8, None, "is missing")]


@pytest.mark.parametrize("column", ["body", "answer"])
def test_what_is_kept_must_be_what_was_recorded(rows: list[RequestRecord], column: str) -> None:
    for row in rows:
        keep_body(row)
    assert found() == []
    RequestBody.objects.filter(pk=rows[3].id).update(**{column: zlib.compress(b"forged")})
    RequestBody.objects.filter(pk=rows[4].id).update(**{column: b"no zlib"})
    RequestBody.objects.filter(pk=rows[5].id).update(**{column: zlib.compress(b"body")[:-1]})
    what = f"its {column} is not the one that was recorded"
    assert found() == [(2, row.id, what) for row in rows[3:6]]


def test_a_body_larger_than_the_pieces_it_is_read_in_is_verified() -> None:
    body = b"0123456789" * 100_000
    row = make_row(body_digest=hashlib.sha256(body).digest())
    seal_all()
    keep_body(row, body=body)
    assert found() == []


def test_seals_of_an_older_key_hold_and_none_after_the_change(
    rows: list[RequestRecord], settings: Settings
) -> None:
    old = settings.SECRET_KEY
    settings.SECRET_KEY = "new" * 20
    assert [number for number, *_ in found()] == [1, 2, 3]
    settings.SECRET_KEY_FALLBACKS = [old]
    assert found() == []
    make_row()
    seal_all()
    assert found() == []
    # Who has the old key only cannot go on with it.
    settings.SECRET_KEY = old
    make_row()
    seal_all()
    settings.SECRET_KEY = "new" * 20
    assert found() == [(5, None, "was changed: its signature does not fit")]


def test_the_database_keeps_sealed_rows_and_seals(rows: list[RequestRecord]) -> None:
    for change in (
        lambda: RequestRecord.objects.filter(pk=rows[0].pk).update(cost_micros=0),
        lambda: RequestRecord.objects.filter(pk=rows[0].pk).delete(),
        lambda: AuditSeal.objects.filter(number=1).update(rows=2),
        lambda: AuditSeal.objects.filter(number=3).update(pruned_at=LONG_AGO),
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            change()


def test_the_command_is_content_with_a_sound_trail(rows: list[RequestRecord]) -> None:
    keep_body(rows[0])
    make_row(settled_at=None)
    out = StringIO()
    call_command("verify_audit", stdout=out)
    head = bytes(AuditSeal.objects.get(number=3).digest).hex()
    assert out.getvalue().splitlines() == [
        "Checked 3 seals, 7 rows, 1 bodies.",
        "Not sealed yet: 1 rows.",
        f"Head: seal 3, {head}",
    ]
    call_command("verify_audit", "--since", "3", "--head", head, stdout=StringIO())


def test_the_command_names_what_is_wrong_and_fails(rows: list[RequestRecord]) -> None:
    tamper("UPDATE jobs_requestrecord SET cost_micros = 0 WHERE id = %s", rows[3].id)
    out = StringIO()
    with pytest.raises(CommandError, match="not as it was sealed: 1 findings") as failure:
        call_command("verify_audit", stdout=out, no_color=True)
    assert failure.value.returncode == 1
    assert out.getvalue().splitlines()[0] == f"seal 2, request {rows[3].id}: was changed"


def test_the_command_counts_what_it_does_not_show(
    rows: list[RequestRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.management.commands.verify_audit._SHOWN", 2)
    tamper("UPDATE jobs_requestrecord SET cost_micros = 0")
    out = StringIO()
    with pytest.raises(CommandError, match="7 findings"):
        call_command("verify_audit", stdout=out, no_color=True)
    shown = [line for line in out.getvalue().splitlines() if "was changed" in line]
    assert len(shown) == 2


@pytest.mark.parametrize("arguments", [("--since", "0"), ("--since", "x"), ("--head", "12ab")])
def test_the_command_refuses_what_names_no_seal(arguments: tuple[str, str]) -> None:
    with pytest.raises(CommandError, match="must be"):
        call_command("verify_audit", *arguments)


@pytest.mark.django_db(transaction=True)
def test_two_that_seal_at_once_make_one_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "MAX_ROWS", 2)
    for _ in range(20):
        make_row()

    def seal() -> None:
        try:
            seal_all()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(seal) for _ in range(4)]:
            done.result()
    assert sorted(AuditSeal.objects.values_list("number", flat=True)) == list(range(1, 11))
    assert not RequestRecord.objects.filter(seal=None).exists()
    assert found() == []
