"""How a batch gets on, over a WebSocket: for pages that show it live.

`/ws/batches/{id}`, and `/admin/ws/batches/{id}` for the admin's own pages, sends the batch as it
is, and again whenever it has changed, until it has ended. Let in are keys of its team, and
operators who are logged in to the admin and may see batches.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from channels.generic.websocket import AsyncWebsocketConsumer

from gateway.http.request import ApiRequest
from gateway.live.access import permissions_of, session_of
from gateway.models import Scope
from gateway.request_ids import parse_request_id
from gateway.services import Services
from inference.errors import TandemError
from jobs.models import Batch

_LOOK_EVERY_S = 0.5
# How long somebody who was logged out, or whose key was revoked, is told more.
_CHECK_EVERY_S = 15.0
# How much of what is known of the pace the last look counts for.
_NEWEST = 0.2
# Closing codes, which pages can tell apart; those from 4000 up are free to use.
UNKNOWN = 4404
DENIED = 4401
TRY_AGAIN = 1013


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A batch at one moment. Times are ISO 8601; `time_left_s` None: not known (yet)."""

    id: str
    form: str
    status: str
    total: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    input_tokens: int
    output_tokens: int
    cost_micros: int
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    time_left_s: float | None = None

    @property
    def ended_rows(self) -> int:
        """How many rows have ended, whichever way."""
        return self.completed + self.failed + self.cancelled + self.expired


_FIELDS = [name for name in Progress.__struct_fields__ if name != "time_left_s"]


class Pace:
    """Rows a second, as a moving mean, and how long the rest takes at that pace."""

    def __init__(self) -> None:
        self._seen: tuple[float, int] | None = None
        self._rows_per_s: float | None = None

    def time_left_s(self, now_s: float, ended: int, total: int) -> float | None:
        """Take what was seen at a time of `time.monotonic`, and return the rest of the time."""
        if self._seen is not None and now_s > self._seen[0]:
            pace = (ended - self._seen[1]) / (now_s - self._seen[0])
            known = self._rows_per_s
            self._rows_per_s = pace if known is None else known + _NEWEST * (pace - known)
        self._seen = now_s, ended
        return (total - ended) / self._rows_per_s if self._rows_per_s else None


class BatchProgress(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One page that watches one batch."""

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._services = services
        self._watching: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Let in whoever may see the batch. The socket is opened first, so that a page can read
        from the closing code why it was not."""
        await self.accept()
        await self._services.ready()
        try:
            teams = await self._teams()
            batch = await self._look(self.scope["url_route"]["kwargs"]["batch_id"])
        except TandemError:
            await self.close(TRY_AGAIN)
            return
        if teams is not None and not teams:
            await self.close(DENIED)
        elif batch is None or (teams is not None and batch[1] not in teams):
            await self.close(UNKNOWN)
        else:
            self._watching = asyncio.create_task(self._watch(*batch))

    async def disconnect(self, code: int) -> None:
        """Stop looking."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching

    async def _teams(self) -> set[int] | None:
        """Return the teams whose batches may be seen; None for all of them."""
        if session := session_of(self.scope):
            permissions = await self._services.database.run(partial(permissions_of, session))
            if permissions is not None and "jobs.view_batch" in permissions:
                return None
        key = ApiRequest(self.scope).api_key
        principal = await self._services.directory.keys.resolve(key) if key else None
        if principal is None or Scope.BATCHES not in principal.scopes:
            return set()
        if principal.expires_at_s is not None and principal.expires_at_s <= time.time():
            return set()
        return {principal.team_id}

    async def _look(self, batch_id: str) -> tuple[Progress, int] | None:
        return await self._services.database.run(partial(_read, batch_id))

    async def _watch(self, progress: Progress, team_id: int) -> None:
        pace = Pace()
        shown: Progress | None = None
        check_at_s = time.monotonic() + _CHECK_EVERY_S
        while True:
            if progress != shown:
                left_s = pace.time_left_s(time.monotonic(), progress.ended_rows, progress.total)
                said = msgspec.structs.replace(progress, time_left_s=left_s)
                await self.send(text_data=msgspec.json.encode(said).decode())
                shown = progress
            if progress.ended_at is not None:
                await self.close()
                return
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                if time.monotonic() >= check_at_s:
                    teams = await self._teams()
                    check_at_s = time.monotonic() + _CHECK_EVERY_S
                    if teams is not None and team_id not in teams:
                        await self.close(DENIED)
                        return
                found = await self._look(progress.id)
            except TandemError:
                # The database is away: it shows what is new once it is back.
                continue
            if found is None:
                await self.close(UNKNOWN)
                return
            progress = found[0]


def _read(batch_id: str) -> tuple[Progress, int] | None:
    """Return a batch and its team; None if there is none of this id."""
    wanted = parse_request_id(batch_id)
    if wanted is None:
        return None
    row: dict[str, Any] | None = Batch.objects.filter(id=wanted).values("team_id", *_FIELDS).first()
    if row is None:
        return None
    team_id = row.pop("team_id")
    return Progress(**(row | {"id": str(row["id"])})), team_id
