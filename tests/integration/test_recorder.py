"""The recorder between a real Redis-protocol server and a real PostgreSQL."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import redis
from django.conf import settings
from django.db import InterfaceError, connection
from redis.exceptions import ConnectionError as RedisConnectionError

from inference.transport.connection import connect, connect_sync
from inference.transport.courier import Courier
from inference.transport.keys import Keys
from inference.transport.records import Ending, Record
from jobs.ledger import read_state, top_up
from jobs.models import LedgerEntry, RequestRecord
from jobs.quota.claims import Claim, Granted
from jobs.quota.client import Settler
from jobs.quota.keys import QuotaKeys
from jobs.recorder import drain, stream
from jobs.recorder.drain import Recorder
from jobs.recorder.leader import Leadership
from jobs.recorder.stream import Dead, Entry, RecordStream
from tests.acceptance.stack import eventually
from tests.holders import read_holder
from tests.records import admitted, closed, completed, entry_of, new_id
from tests.unit.jobs.quota.kit import OneByOne, make_claim, prepaid

pytestmark = pytest.mark.django_db(transaction=True)

PATIENT_S = 3600.0


class Bench:
    """A stream of one's own, and recorders on it."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.prefix = f"recorder-{secrets.token_hex(4)}"
        self.keys = Keys(self.prefix)

    def put(self, *records: Record) -> None:
        for record in records:
            self.put_bytes(entry_of(record))

    def put_bytes(self, data: bytes) -> None:
        self.client.xadd(self.keys.records, {"r": data})

    def tell(self, request_id: str) -> None:
        self.put(admitted(request_id), completed(request_id), closed(request_id))

    @contextmanager
    def recording(self, settle_after_s: float = PATIENT_S) -> Iterator[None]:
        """Run a recorder in a thread."""
        stop = threading.Event()
        with connect_sync(settings.REDIS_URL) as client:
            recorder = Recorder(
                RecordStream(client, self.keys), Settler(client, self.prefix), settle_after_s
            )
            thread = threading.Thread(target=recorder.run, args=[stop])
            thread.start()
            try:
                yield
            finally:
                stop.set()
                thread.join()

    def wait_until_drained(self) -> None:
        eventually(lambda: self.client.xlen(self.keys.records) == 0, "every record is gone")

    def wait_until_settled(self, count: int) -> None:
        eventually(
            lambda: RequestRecord.objects.filter(settled_at__isnull=False).count() == count,
            f"{count} rows are settled",
        )


@pytest.fixture
def bench() -> Iterator[Bench]:
    with connect_sync(settings.REDIS_URL) as client:
        made = Bench(client)
        yield made
        if left := list(client.scan_iter(f"{made.prefix}:*")):
            client.delete(*left)


def leaders() -> list[int]:
    """Return the PostgreSQL sessions that have the recorder's lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return [pid for (pid,) in cursor.fetchall()]


def wait_for_leader() -> int:
    (leader,) = eventually(leaders, "a recorder leads")
    return leader


def end_session(pid: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    eventually(lambda: pid not in leaders(), "the session has ended")


def entries() -> dict[str, int]:
    """Return how many entries each request has."""
    counted: dict[str, int] = {}
    for entry in LedgerEntry.objects.all():
        counted[str(entry.request_id)] = counted.get(str(entry.request_id), 0) + 1
    return counted


def test_what_is_told_is_recorded_and_the_stream_is_left_empty(bench: Bench) -> None:
    ids = [new_id() for _ in range(700)]
    for request_id in ids:
        bench.tell(request_id)
    with bench.recording():
        bench.wait_until_settled(700)
        bench.wait_until_drained()
    assert entries() == dict.fromkeys(ids, 1)


def test_the_quota_is_told_of_the_account_after_the_commit(bench: Bench) -> None:
    bench.tell(new_id())
    state = QuotaKeys(bench.prefix).team(1)[0]

    def knows() -> bool:
        team: Any = bench.client.hget(state, "team")
        return bool(team) and read_holder(team)["version"] == 1

    with bench.recording():
        eventually(knows, "the quota knows")


def test_of_two_recorders_one_writes_until_its_session_is_lost(bench: Bench) -> None:
    ids = [new_id() for _ in range(60)]
    with bench.recording(), bench.recording():
        first = wait_for_leader()
        for request_id in ids[:20]:
            bench.tell(request_id)
        bench.wait_until_settled(20)
        assert leaders() == [first]
        for request_id in ids[20:40]:
            bench.tell(request_id)
        end_session(first)
        for request_id in ids[40:]:
            bench.tell(request_id)
        bench.wait_until_settled(60)
        assert wait_for_leader() != first
        bench.wait_until_drained()
    assert entries() == dict.fromkeys(ids, 1)


def test_a_recorder_that_is_alone_begins_anew_with_a_new_session(bench: Bench) -> None:
    with bench.recording():
        end_session(wait_for_leader())
        bench.tell(new_id())
        bench.wait_until_settled(1)


def test_a_lost_session_writes_nothing_more_though_django_would_connect_again() -> None:
    """The lock is the old session's."""
    failures: list[str] = []

    def lead() -> None:
        leadership = Leadership()
        assert leadership.acquire(threading.Event())
        connection.close()
        try:
            with leadership.transaction():
                failures.append("it wrote")
        except InterfaceError as error:
            failures.append(str(error))
        leadership.release()

    thread = threading.Thread(target=lead)
    thread.start()
    thread.join()
    assert failures == ["the session that had the recorder's lock is lost"]


def test_what_was_committed_and_not_removed_is_recorded_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fell = threading.Event()
    remove = RecordStream.remove

    def fall_once(self: RecordStream, entries: list[Entry], dead: list[Dead]) -> None:
        if not fell.is_set():
            fell.set()
            raise RedisConnectionError("killed between the commit and the removal")
        remove(self, entries, dead)

    monkeypatch.setattr(RecordStream, "remove", fall_once)
    request_id = new_id()
    bench.tell(request_id)
    with bench.recording():
        bench.wait_until_drained()
    assert fell.is_set()
    assert entries() == {request_id: 1}


def test_records_that_cannot_be_kept_are_put_aside_and_hold_up_nobody(bench: Bench) -> None:
    ids = [new_id() for _ in range(20)]
    for request_id in ids[:10]:
        bench.tell(request_id)
    bench.put_bytes(b"\xc1")
    bench.put_bytes(msgspec.msgpack.encode(["no record"]))
    bench.put(admitted("no-uuid"))
    bench.put(admitted(new_id(), model="m" * 201))
    bench.put(admitted(new_id(), team_id=2**63))
    for request_id in ids[10:]:
        bench.tell(request_id)
    with bench.recording():
        bench.wait_until_settled(20)
        bench.wait_until_drained()
    assert entries() == dict.fromkeys(ids, 1)
    assert RequestRecord.objects.count() == 20
    put_aside: Any = bench.client.xrange(bench.keys.dead_records)
    dead = [fields for _, fields in put_aside]
    assert [fields[b"reason"].decode().partition(":")[0] for fields in dead] == [
        "DecodeError",
        "ValidationError",
        "ValueError",
        "DataError",
        "DataError",
    ]
    assert dead[0][b"r"] == b"\xc1"
    assert b"-" in dead[0][b"id"]


def test_a_quota_that_cannot_be_settled_holds_up_nobody(bench: Bench) -> None:
    bench.client.set(QuotaKeys(bench.prefix).team(1)[0], "of another type")
    bench.tell(new_id())
    with bench.recording():
        bench.wait_until_settled(1)
        bench.wait_until_drained()


def test_a_redis_that_forgets_everything_is_no_obstacle(bench: Bench) -> None:
    with bench.recording():
        bench.tell(new_id())
        bench.wait_until_settled(1)
        bench.client.delete(*bench.client.scan_iter(f"{bench.prefix}:*"))
        bench.tell(new_id())
        bench.wait_until_settled(2)


@pytest.mark.parametrize("bound", ["BATCH", "BATCH_BYTES"])
def test_nothing_is_given_up_while_there_is_more_to_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    for name in (bound, "_AT_ONCE"):
        monkeypatch.setattr(stream, name, 1)
    request_id = new_id()
    bench.put(admitted(request_id, 0.0), completed(request_id, 0.0), closed(request_id, 0.0))
    with bench.recording(settle_after_s=0.0):
        bench.wait_until_settled(1)
    assert RequestRecord.objects.get().ending == "finished"


def test_large_bodies_come_a_few_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BATCH_BYTES", 200_000)
    ids = [new_id() for _ in range(100)]
    bench.put(*(admitted(request_id, body=b"x" * 10_000) for request_id in ids))
    reader = RecordStream(bench.client, bench.keys)
    seen = []
    for _ in range(5):
        batch = reader.read()
        assert (len(batch.entries), batch.more) == (20, True)
        seen += [entry.id for entry in batch.entries]
        reader.remove(batch.entries, [])
    assert len(set(seen)) == 100
    assert reader.read() == ([], False)


def test_what_nobody_ends_is_settled_after_a_while(bench: Bench) -> None:
    lost, cut = new_id(), new_id()
    bench.put(admitted(lost, deadline_s=0.0))
    bench.put(admitted(cut, 0.0), closed(cut, 0.0, ending=Ending.CANCELLED))
    with bench.recording(settle_after_s=0.1):
        bench.wait_until_settled(2)
    assert entries() == {lost: 1, cut: 1}
    assert {row.ending for row in RequestRecord.objects.all()} == {"gateway_lost", "cancelled"}


def test_nothing_is_given_up_before_it_could_be_heard(bench: Bench) -> None:
    """A recorder that comes after hours finds old rows, and their ends still on their way."""
    request_id = new_id()
    bench.put(admitted(request_id, 0.0))
    with bench.recording():
        bench.wait_until_drained()
        bench.put(completed(request_id, 0.0), closed(request_id, 0.0))
        bench.wait_until_settled(1)
    assert RequestRecord.objects.get().ending == "finished"


def grant(bench: Bench, *claims: Claim) -> None:
    """Let requests in that hold something, as a gateway does before it says anything of them."""

    state = read_state(1)

    async def ask() -> None:
        async with connect(settings.REDIS_URL) as client:
            quota = OneByOne(Courier(client), bench.prefix)
            await quota.load(1, state)
            for claim in claims:
                assert isinstance(await quota.admit(claim), Granted)

    asyncio.run(ask())


def held(bench: Bench) -> int:
    team: Any = bench.client.hget(QuotaKeys(bench.prefix).team(1)[0], "team")
    return int(read_holder(team)["held"])


def test_what_is_held_for_a_request_that_nobody_tells_of_is_dropped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gateway was killed between the quota's answer and its first record."""
    monkeypatch.setattr(drain, "_END_LATE_EVERY_S", 0.05)
    top_up(1, 1000)
    lost, running = (
        make_claim(team_id=1, spend=prepaid(hold), lease_ms=lease_ms)
        for hold, lease_ms in ((600, 1), (300, 600_000))
    )
    grant(bench, lost, running)
    # Of this one somebody still may tell.
    waited_for = make_claim(team_id=1, spend=prepaid(100), lease_ms=1)
    grant(bench, waited_for)
    bench.put(admitted(waited_for.request_id))
    with bench.recording(settle_after_s=0.2):
        eventually(lambda: held(bench) == 400, "the hold is dropped")
    assert not LedgerEntry.objects.filter(kind="usage").exists()
