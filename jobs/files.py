"""Files: written aside, stored whole, read, and forgotten.

The bytes lie in Django's default storage, one name for each row of `StoredFile`. The row comes
after the bytes and goes before them: whoever sees a file can read all of it, and what a process
that died left behind has no row, so that `sweep_orphans` may remove it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import IO, Self, cast
from uuid import UUID

from django.conf import settings
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import TemporaryUploadedFile, UploadedFile
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from inference.errors import ErrorCode, TandemError
from jobs.models import StoredFile
from jobs.paging import beyond

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Longest line of a batch's input: room for one image of the largest size, in Base64."""

_ORPHAN_AGE = timedelta(days=1)
"""Longer than anything takes to be written."""
_AT_ONCE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """What is known of a file before it is stored. `lines` counts the requests in it."""

    id: UUID
    team_id: int
    key_id: UUID | None
    filename: str
    purpose: StoredFile.Purpose
    expires_at: datetime | None = None
    lines: int | None = None


class _SpooledFile(TemporaryUploadedFile):
    """A temporary file that the storage takes as it is: on one disk it is moved, not copied."""

    def __init__(self) -> None:
        folder = _spool_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = NamedTemporaryFile(dir=folder)  # noqa: SIM115
        UploadedFile.__init__(self, file, "spool", None, 0, None)


class Spool:
    """A file that is being written, on this machine's disk; gone when its block ends.

    Writing takes no memory beyond a buffer. `save` makes a file of a team of it.
    """

    def __init__(self) -> None:
        self._file = _SpooledFile()
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, data: bytes | memoryview) -> None:
        """Add to the end."""
        self._file.write(data)
        self._digest.update(data)
        self.size_bytes += len(data)

    def read_back(self) -> IO[bytes]:
        """Return what was written, to read from its beginning; nothing is written after."""
        self._file.seek(0)
        return cast("IO[bytes]", self._file)

    @property
    def digest(self) -> bytes:
        """The SHA-256 of what was written."""
        return self._digest.digest()

    def finished(self) -> TemporaryUploadedFile:
        """Return the file for the storage, all of it on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.seek(0)
        self._file.size = self.size_bytes
        return self._file


def save(spool: Spool, new: NewFile) -> StoredFile:
    """Store what a spool holds, once, and return its row.

    Inside a transaction the file appears with what refers to it, or not at all: the bytes of a
    transaction that is rolled back are an orphan's.
    """
    now = timezone.now()
    name = default_storage.save(f"{now:%Y-%m-%d}/{new.id}", spool.finished())
    stored = False
    try:
        file = StoredFile.objects.create(
            id=new.id,
            team_id=new.team_id,
            key_id=new.key_id,
            created_at=now,
            expires_at=new.expires_at,
            filename=new.filename,
            purpose=new.purpose,
            size_bytes=spool.size_bytes,
            lines=new.lines,
            digest=spool.digest,
            name=name,
        )
        stored = True
    finally:
        if not stored:
            _forget_bytes([name])
    return file


def find(file_id: UUID, team_id: int) -> StoredFile:
    """Return a team's file. Raises NOT_FOUND if it has no such file, or no longer."""
    file = _visible(team_id).filter(id=file_id).first()
    if file is None:
        raise TandemError(ErrorCode.NOT_FOUND, f"No such File object: file-{file_id}", param="id")
    return file


def open_bytes(file: StoredFile) -> IO[bytes]:
    """Open a file to read. Raises NOT_FOUND if it was deleted in the meantime."""
    try:
        return cast("IO[bytes]", default_storage.open(file.name))
    except FileNotFoundError:
        raise TandemError(
            ErrorCode.NOT_FOUND, f"No such File object: file-{file.id}", param="id"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuery:
    """Which of a team's files to list. `after` is the last one of the page before."""

    team_id: int
    purpose: str | None = None
    after: UUID | None = None
    limit: int = 10_000
    ascending: bool = False


def page(query: FileQuery) -> tuple[list[StoredFile], bool]:
    """Return files in the order of their creation, and whether there are more."""
    theirs = StoredFile.objects.filter(team_id=query.team_id)
    if query.after is not None:
        # First: it may be one that has expired meanwhile, or of another purpose.
        theirs = beyond(theirs, query.after, newer=query.ascending)
    found = theirs.filter(_lasting())
    if query.purpose is not None:
        found = found.filter(purpose=query.purpose)
    order = ("created_at", "id") if query.ascending else ("-created_at", "-id")
    files = list(found.order_by(*order)[: query.limit + 1])
    return files[: query.limit], len(files) > query.limit


def delete(file_id: UUID, team_id: int) -> bool:
    """Delete a team's file; return whether there was one."""
    return _remove(_visible(team_id).filter(id=file_id)) > 0


def prune_expired(now: datetime) -> Iterator[int]:
    """Remove files whose time is over, a chunk with each step; yield how many it had."""
    over = StoredFile.objects.filter(expires_at__lte=now).order_by("expires_at")
    while count := _remove(over[:_AT_ONCE]):
        yield count


def sweep_orphans(now: datetime) -> int:
    """Remove the bytes that no row has, and spools of processes that died; return how many.

    Only those older than a day: what is being written has no row yet.
    """
    removed = _sweep_spools(now)
    newest = f"{now - _ORPHAN_AGE:%Y-%m-%d}"
    try:
        days = [day for day in default_storage.listdir("")[0] if day < newest]
    except FileNotFoundError:
        return removed  # nothing was ever stored
    for day in days:
        names = [f"{day}/{name}" for name in default_storage.listdir(day)[1]]
        for start in range(0, len(names), _AT_ONCE):
            chunk = names[start : start + _AT_ONCE]
            known = StoredFile.objects.filter(name__in=chunk).values_list("name", flat=True)
            orphans = sorted(set(chunk) - set(known))
            _forget_bytes(orphans)
            removed += len(orphans)
    return removed


def numbered_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a JSONL file and their numbers, from 1, without their ends.

    A byte order mark is skipped, and so are lines of white space; they count. Whatever the file
    is, no more than one line is in memory: what is longer than `MAX_LINE_BYTES` is yielded cut,
    and is still longer.
    """
    limit = MAX_LINE_BYTES + len(b"\r\n")
    number = 0
    while line := file.readline(limit):
        number += 1
        rest = line
        while len(rest) == limit and not rest.endswith(b"\n"):
            rest = file.readline(limit)
        if number == 1:
            line = line.removeprefix(BOM_UTF8)
        line = line.rstrip(b"\r\n") if line.endswith(b"\n") else line
        if line.strip():
            yield number, line


def _visible(team_id: int) -> QuerySet[StoredFile]:
    """Return a team's files whose time is not over."""
    return StoredFile.objects.filter(_lasting(), team_id=team_id)


def _lasting() -> Q:
    return Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())


def _remove(files: QuerySet[StoredFile]) -> int:
    with transaction.atomic():
        found = list(files.select_for_update(skip_locked=True))
        StoredFile.objects.filter(id__in=[file.id for file in found]).delete()
        transaction.on_commit(partial(_forget_bytes, [file.name for file in found]))
    return len(found)


def _forget_bytes(names: list[str]) -> None:
    """Delete from the storage. What cannot be deleted now is an orphan, and swept."""
    for name in names:
        try:
            default_storage.delete(name)
        except OSError:
            logger.exception("Cannot delete %s from the storage", name)


def _sweep_spools(now: datetime) -> int:
    oldest_s = (now - _ORPHAN_AGE).timestamp()
    # A folder that does not exist has nothing in it.
    old = [path for path in _spool_folder().glob("*") if path.stat().st_mtime < oldest_s]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


def _spool_folder() -> Path:
    # Beside the files, where they are on a local disk.
    folder: Path = settings.TANDEM.DATA_DIR / "spool"
    return folder
