"""Drains the stream of records into the database."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec
from django.db import DataError, Error, IntegrityError
from django.utils import timezone
from redis.exceptions import ResponseError

from inference.transport.connection import Unreachable
from inference.transport.records import Record, decode_record
from jobs.quota.client import Settler
from jobs.recorder import sweep
from jobs.recorder.batch import write
from jobs.recorder.leader import Leadership
from jobs.recorder.settling import Settlement
from jobs.recorder.stream import Dead, Entry, RecordStream

logger = logging.getLogger(__name__)

# A transaction costs as much as a hundred requests in it: let them gather.
GATHER_S = 0.25
_SWEEP_EVERY_S = 1.0
_RETRY_AFTER_S = 1.0
_Decoded = tuple[Entry, Record]


class Recorder:
    """Records while it is the leader. `run` it in a thread of its own."""

    def __init__(self, stream: RecordStream, settler: Settler, settle_after_s: float) -> None:
        self._stream = stream
        self._settler = settler
        self._settle_after_s = settle_after_s
        self._leadership = Leadership()
        self._sweep_at_s = 0.0

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
        self._stream.open()
        # What was kept back while nobody could write or read gets as long as everything else.
        self._sweep_at_s = time.monotonic() + self._settle_after_s
        logger.info("Recording")
        while not stop.is_set():
            batch = self._stream.read()
            if batch.entries:
                self._take(batch.entries)
            if not batch.more:
                # Only now nothing is left that could still tell of a request.
                self._sweep()
                stop.wait(GATHER_S)

    def _take(self, entries: Sequence[Entry]) -> None:
        dead: list[Dead] = []
        self._settle(self._write(_decode(entries, dead), dead))
        for entry, reason in dead:
            logger.error("Record %s cannot be kept and is put aside: %s", entry.id.decode(), reason)
        self._stream.acknowledge(entries, dead)

    def _write(self, decoded: Sequence[_Decoded], dead: list[Dead]) -> list[Settlement]:
        """Write records in as few transactions as it takes to leave out those that cannot be."""
        if not decoded:
            return []
        try:
            with self._leadership.transaction():
                return write([record for _, record in decoded], timezone.now())
        except (DataError, IntegrityError, ValueError, OverflowError) as error:
            if len(decoded) == 1:
                dead.append(Dead(decoded[0][0], _reason(error)))
                return []
        middle = len(decoded) // 2
        return self._write(decoded[:middle], dead) + self._write(decoded[middle:], dead)

    def _sweep(self) -> None:
        while time.monotonic() >= self._sweep_at_s:
            now = timezone.now()
            with self._leadership.transaction():
                settled = sweep.settle_overdue(now - timedelta(seconds=self._settle_after_s), now)
            self._settle(settled)
            if sum(len(each.requests) for each in settled) < sweep.LIMIT:
                self._sweep_at_s = time.monotonic() + _SWEEP_EVERY_S

    def _settle(self, settlements: Iterable[Settlement]) -> None:
        for each in settlements:
            try:
                self._settler.settle(each.team_id, each.state, each.requests)
            except ResponseError:
                # No record is held up by it, and what is held of the team's credit expires.
                logger.exception("The quota of team %d cannot be settled", each.team_id)


def _decode(entries: Sequence[Entry], dead: list[Dead]) -> list[_Decoded]:
    decoded = []
    for entry in entries:
        if entry.data is None:
            continue
        try:
            decoded.append((entry, decode_record(entry.data)))
        except msgspec.DecodeError as error:
            dead.append(Dead(entry, _reason(error)))
    return decoded


def _reason(error: BaseException) -> str:
    """Return what is wrong without the details, which quote what callers sent."""
    first, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {first}"
