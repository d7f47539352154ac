"""A gateway's view of the live engines, refreshed from their heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import msgspec
import redis.asyncio

from inference.transport.frames import EngineReport, EngineState, decode_report
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions


class EngineView:
    """The last report of each engine that is alive, and who has just died.

    `on_death` is called with the id of an engine that is gone or says that it has failed,
    `on_drain` as long as one is seen to be draining: it may have taken none of what waits.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        keys: Keys,
        options: TransportOptions,
        on_death: Callable[[str], None],
        on_drain: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._keys = keys
        self._misses_until_dead = options.misses_until_dead
        self._on_death = on_death
        self._on_drain = on_drain
        self._reports: dict[str, EngineReport] = {}
        self._misses: dict[str, int] = {}

    async def refresh(self) -> None:
        """Look once. Raises when Redis is unreachable; what was known then stays as it is."""
        members = cast("set[bytes]", await self._client.smembers(self._keys.engines))
        ids = [raw.decode() for raw in members]
        ids.extend(known for known in self._reports if known not in ids)
        if not ids:
            return
        drained = self._draining()
        heartbeats = [self._keys.engine(engine_id) for engine_id in ids]
        values = cast("list[bytes | None]", await self._client.mget(heartbeats))
        for engine_id, value in zip(ids, values, strict=True):
            if value is None:
                self._miss(engine_id)
            else:
                self._see(engine_id, value)
        # Seen twice: what they took last is known by then.
        if drained & self._draining():
            self._on_drain()

    def _draining(self) -> set[str]:
        reports = self._reports.items()
        return {engine_id for engine_id, each in reports if each.state is EngineState.DRAINING}

    def _see(self, engine_id: str, value: bytes) -> None:
        try:
            report = decode_report(value)
        except msgspec.DecodeError:
            # An engine of another version: it cannot be given work, so it is not there.
            return self._miss(engine_id)
        self._misses.pop(engine_id, None)
        self._reports[engine_id] = report
        if report.state is EngineState.FAILED:
            self._on_death(engine_id)
        return None

    def _miss(self, engine_id: str) -> None:
        if engine_id not in self._reports:
            return
        misses = self._misses.get(engine_id, 0) + 1
        self._misses[engine_id] = misses
        if misses >= self._misses_until_dead:
            del self._reports[engine_id], self._misses[engine_id]
            self._on_death(engine_id)

    def forgive(self) -> None:
        """Redis was away, or has forgotten everything: nobody was silent by their own fault."""
        self._misses.clear()

    def all(self) -> Iterable[EngineReport]:
        """Every engine that is alive, in whatever state."""
        return self._reports.values()

    def of(self, model: str) -> list[EngineReport]:
        """The live engines of one model, in whatever state."""
        return [report for report in self._reports.values() if report.model == model]

    def ready(self, model: str) -> list[EngineReport]:
        """The engines of one model that take work."""
        return [report for report in self.of(model) if report.state is EngineState.READY]
