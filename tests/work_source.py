"""A source of work in memory, which tests look into and upset."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
from django.db import OperationalError

from inference.engine.work import WorkItem, WorkResult
from inference.transport.records import Ending
from tests.contracts.requests import make_request


def make_item(text: str = "go", *, deadline_s: float | None = None, **fields: Any) -> WorkItem:
    """Return an item whose request says `text`; it has a day, unless `deadline_s` says else."""
    request = make_request(text, max_tokens=100_000)
    deadline_s = time.time() + 86_400 if deadline_s is None else deadline_s
    request = msgspec.structs.replace(request, deadline_s=deadline_s)
    return WorkItem(request=request, attempt=0, **fields)


class FakeSource:
    """Keeps work as `inference.engine.work` says. What it is told is in the lists.

    `away`: every call raises, as with a database that is gone. `broken_off` is what `renew` says.
    """

    def __init__(self, *pending: WorkItem) -> None:
        self.pending = list(pending)
        self.taken: dict[str, WorkItem] = {}
        self.results: list[WorkResult] = []
        self.batches: list[int] = []
        self.given_back: list[str] = []
        self.limits: list[int] = []
        self.renewed: list[set[str]] = []
        self.broken_off: set[str] = set()
        self.opened = 0
        self.closed = False
        self.away = False
        self.on_finish: Callable[[], None] = lambda: None
        self.threads: set[int] = set()

    def add(self, *items: WorkItem) -> None:
        """Add work that nobody is told of."""
        self.pending += items

    def ending_of(self, item: WorkItem) -> Ending | None:
        """Return how an item ended, if it has; fails if it did more than once."""
        endings = [
            result.ending for result in self.results if result.item.request.id == item.request.id
        ]
        assert len(endings) <= 1
        return endings[0] if endings else None

    def _called(self) -> None:
        self.threads.add(threading.get_ident())
        if self.away:
            raise OperationalError("the database is away")

    def open(self) -> None:
        self._called()
        self.opened += 1

    def claim(self, limit: int, first: Collection[str] = ()) -> list[WorkItem]:
        self._called()
        self.limits.append(limit)
        # Tests add to the list meanwhile, from another thread: it is neither sorted nor replaced.
        claimed = sorted(self.pending, key=lambda item: item.request.id not in first)[:limit]
        for item in claimed:
            self.pending.remove(item)
        self.taken |= {item.request.id: item for item in claimed}
        return claimed

    def finish(self, results: Sequence[WorkResult]) -> None:
        self._called()
        self.on_finish()
        self.batches.append(len(results))
        for result in results:
            if self.taken.pop(result.item.request.id, None):
                self.results.append(result)

    def renew(self, running: Collection[str]) -> set[str]:
        self._called()
        self.renewed.append(set(running))
        return self.broken_off & set(running)

    def give_back(self, request_ids: Collection[str], *, preempted: bool = False) -> None:
        self._called()
        for request_id in request_ids:
            if item := self.taken.pop(request_id, None):
                self.given_back.append(request_id)
                if preempted:
                    item = msgspec.structs.replace(item, preemptions=item.preemptions + 1)
                self.pending.insert(0, item)

    def close(self) -> None:
        self._called()
        self.closed = True
        self.give_back(list(self.taken))
