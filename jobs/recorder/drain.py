"""Drains the stream of records into the database."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec
from django.db import DataError, Error, IntegrityError
from django.utils import timezone
from redis.exceptions import ResponseError

from inference.transport.connection import Unreachable
from inference.transport.records import Record, decode_entry, decode_record, encode_entry
from jobs.quota.client import Settler
from jobs.recorder import sweep
from jobs.recorder.batch import write
from jobs.recorder.leader import Leadership
from jobs.recorder.settling import Settlement
from jobs.recorder.stream import Dead, Entry, RecordStream

logger = logging.getLogger(__name__)

# A transaction costs as much as a hundred requests in it: let them gather.
GATHER_S = 0.5
_SWEEP_EVERY_S = 1.0
_END_LATE_EVERY_S = 60.0
_RETRY_AFTER_S = 1.0


class _Told(NamedTuple):
    """One record, as it was written and as it was read."""

    entry_id: bytes
    data: msgspec.Raw
    record: Record


class Recorder:
    """Records while it is the leader. `run` it in a thread of its own."""

    def __init__(self, stream: RecordStream, settler: Settler, settle_after_s: float) -> None:
        self._stream = stream
        self._settler = settler
        self._settle_after_s = settle_after_s
        self._leadership = Leadership()
        self._sweep_at_s = 0.0
        self._end_late_at_s = 0.0

    def run(self, stop: threading.Event) -> None:
        """Record until told to stop, whatever becomes of PostgreSQL and Redis meanwhile."""
        while not stop.is_set():
            try:
                if self._leadership.acquire(stop):
                    self._record(stop)
            except (Error, *Unreachable, ResponseError) as error:
                logger.warning("Recording stops for a moment: %s", _reason(error))
                stop.wait(_RETRY_AFTER_S)
            finally:
                self._leadership.release()

    def _record(self, stop: threading.Event) -> None:
        # What was kept back while nobody could write or read gets as long as everything else.
        self._sweep_at_s = self._end_late_at_s = time.monotonic() + self._settle_after_s
        logger.info("Recording")
        while not stop.is_set():
            batch = self._stream.read()
            if batch.entries:
                self._take(batch.entries)
            if not batch.more:
                # Only now nothing is left that could still tell of a request.
                self._sweep()
                self._end_late()
                stop.wait(GATHER_S)

    def _take(self, entries: Sequence[Entry]) -> None:
        dead: list[Dead] = []
        self._settle(self._write(_decode(entries, dead), dead))
        for entry_id, _, reason in dead:
            logger.error("Record %s cannot be kept and is put aside: %s", entry_id.decode(), reason)
        self._stream.remove(entries, dead)

    def _write(self, told: Sequence[_Told], dead: list[Dead]) -> list[Settlement]:
        """Write records in as few transactions as it takes to leave out those that cannot be."""
        if not told:
            return []
        try:
            with self._leadership.transaction():
                return write([each.record for each in told], timezone.now())
        except (DataError, IntegrityError, ValueError, OverflowError) as error:
            if len(told) == 1:
                dead.append(Dead(told[0].entry_id, encode_entry([told[0].data]), _reason(error)))
                return []
        middle = len(told) // 2
        return self._write(told[:middle], dead) + self._write(told[middle:], dead)

    def _sweep(self) -> None:
        while time.monotonic() >= self._sweep_at_s:
            now = timezone.now()
            with self._leadership.transaction():
                settled = sweep.settle_overdue(now - timedelta(seconds=self._settle_after_s), now)
            self._settle(settled)
            if sum(len(each.requests) for each in settled) < sweep.LIMIT:
                self._sweep_at_s = time.monotonic() + _SWEEP_EVERY_S

    def _end_late(self) -> None:
        """Drop what is held for requests of which there never was a record."""
        if time.monotonic() < self._end_late_at_s:
            return
        for team_id in self._settler.teams():
            try:
                late = self._settler.late(team_id, self._settle_after_s)
            except ResponseError:
                logger.exception("The quota of team %d cannot be looked through", team_id)
            else:
                self._settle(sweep.end_late(team_id, late, timezone.now()))
        self._end_late_at_s = time.monotonic() + _END_LATE_EVERY_S

    def _settle(self, settlements: Iterable[Settlement]) -> None:
        for each in settlements:
            try:
                self._settler.settle(each.team_id, each.state, each.requests)
            except ResponseError:
                # No record is held up by it, and what is held of the team's credit expires.
                logger.exception("The quota of team %d cannot be settled", each.team_id)


def _decode(entries: Sequence[Entry], dead: list[Dead]) -> list[_Told]:
    told = []
    for entry_id, data in entries:
        try:
            records = decode_entry(data)
        except msgspec.DecodeError as error:
            dead.append(Dead(entry_id, data, _reason(error)))
            continue
        for record in records:
            try:
                told.append(_Told(entry_id, record, decode_record(record)))
            except msgspec.DecodeError as error:
                dead.append(Dead(entry_id, encode_entry([record]), _reason(error)))
    return told


def _reason(error: BaseException) -> str:
    """Return what is wrong without the details, which quote what callers sent."""
    first, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {first}"
