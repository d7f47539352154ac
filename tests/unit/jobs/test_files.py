"""Files: whole or not there, each team's own, gone when their time is over."""

from __future__ import annotations

import hashlib
import io
import os
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uuid_utils
from django.core.files.storage import default_storage
from django.db import DatabaseError, transaction
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import DjangoCaptureOnCommitCallbacks

from inference.errors import ErrorCode, TandemError
from jobs import files
from jobs.files import FileQuery, NewFile, Spool, numbered_lines
from jobs.models import Batch, StoredFile
from tests.file_storage import use_folder

pytestmark = pytest.mark.django_db

Purpose = StoredFile.Purpose
NOW = timezone.now()
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def folder(settings: Any, tmp_path: Path) -> Iterator[Path]:
    """Give each test a storage of its own, and see that no spool is left."""
    use_folder(settings, tmp_path)
    yield tmp_path / "files"
    assert list((tmp_path / "spool").glob("*")) == []


def new_file(**fields: Any) -> NewFile:
    known: dict[str, Any] = {
        "id": uuid.UUID(str(uuid_utils.uuid7())),
        "team_id": 1,
        "key_id": uuid.uuid4(),
        "filename": "a.jsonl",
        "purpose": Purpose.BATCH,
    }
    return NewFile(**(known | fields))


def store(content: bytes = b"12\n3", **fields: Any) -> StoredFile:
    with Spool() as spool:
        spool.write(content[:2])
        spool.write(content[2:])
        return files.save(spool, new_file(**fields))


def stored_names(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def test_a_file_is_stored_whole_with_its_digest(folder: Path) -> None:
    file = store(b"12\n3", lines=2)
    assert files.find(file.id, 1) == file
    assert (file.size_bytes, file.lines) == (4, 2)
    assert bytes(file.digest) == hashlib.sha256(b"12\n3").digest()
    with files.open_bytes(file) as opened:
        assert opened.read() == b"12\n3"
    assert stored_names(folder) == [file.name]
    assert (folder / file.name).stat().st_mode & 0o077 == 0


def test_what_was_not_saved_is_gone(folder: Path) -> None:
    with Spool() as spool:
        spool.write(b"x")
    assert not folder.exists()


def test_a_file_whose_row_cannot_be_made_leaves_no_bytes(folder: Path) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        store(filename="x" * 1000)
    assert stored_names(folder) == []


def test_a_file_is_its_teams(folder: Path) -> None:
    file = store()
    with pytest.raises(TandemError) as caught:
        files.find(file.id, 2)
    assert caught.value.code is ErrorCode.NOT_FOUND
    assert not files.delete(file.id, 2)
    assert files.page(FileQuery(team_id=2)) == ([], False)


def test_a_deleted_file_is_gone_with_its_bytes(
    folder: Path, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    file = store()
    with django_capture_on_commit_callbacks(execute=True):
        assert files.delete(file.id, 1)
        assert stored_names(folder) == [file.name], "not before it is committed"
    assert stored_names(folder) == []
    assert not files.delete(file.id, 1)
    with pytest.raises(TandemError) as caught:
        files.open_bytes(file)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_a_batch_outlives_its_files(
    folder: Path, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    file = store()
    batch = Batch.objects.create(
        id=uuid.uuid4(),
        form=Batch.Form.OPENAI,
        team_id=1,
        key_id=uuid.uuid4(),
        expires_at=NOW,
        input_file=file,
        input_file_ref=file.id,
    )
    with django_capture_on_commit_callbacks(execute=True):
        files.delete(file.id, 1)
    batch.refresh_from_db()
    assert (batch.input_file, batch.input_file_ref) == (None, file.id)


def test_pages_go_through_all_files_in_both_directions() -> None:
    made = [store().id for _ in range(5)]
    store(team_id=2)
    for ascending in (True, False):
        seen: list[uuid.UUID] = []
        has_more = True
        while has_more:
            after = seen[-1] if seen else None
            query = FileQuery(team_id=1, after=after, limit=2, ascending=ascending)
            found, has_more = files.page(query)
            seen += [file.id for file in found]
        assert seen == (made if ascending else made[::-1])


def test_files_of_one_moment_are_all_listed() -> None:
    made = {store().id for _ in range(4)}
    StoredFile.objects.update(created_at=NOW)
    first, has_more = files.page(FileQuery(team_id=1, limit=2))
    assert has_more
    second, has_more = files.page(FileQuery(team_id=1, limit=2, after=first[-1].id))
    assert not has_more
    assert {file.id for file in [*first, *second]} == made


def test_a_page_goes_on_after_a_file_that_was_deleted() -> None:
    old, middle, new = (store(id=_id_at(NOW - n * DAY)) for n in (3, 2, 1))
    for file, days in ((old, 3), (middle, 2), (new, 1)):
        StoredFile.objects.filter(id=file.id).update(created_at=NOW - days * DAY)
    files.delete(middle.id, 1)
    assert files.page(FileQuery(team_id=1, after=middle.id))[0] == [old]
    assert files.page(FileQuery(team_id=1, after=middle.id, ascending=True))[0] == [new]


def _id_at(moment: datetime) -> uuid.UUID:
    return uuid.UUID(int=int(moment.timestamp() * 1000) << 80)


def test_a_file_whose_time_is_over_is_not_there_and_then_gone(
    folder: Path, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    over = store(expires_at=NOW - DAY)
    lasting = [store(expires_at=NOW + DAY), store()]
    with pytest.raises(TandemError):
        files.find(over.id, 1)
    assert set(files.page(FileQuery(team_id=1))[0]) == set(lasting)
    with django_capture_on_commit_callbacks(execute=True):
        assert list(files.prune_expired(NOW)) == [1]
    assert sorted(stored_names(folder)) == sorted(file.name for file in lasting)


def test_bytes_without_a_row_are_swept_after_a_day(folder: Path) -> None:
    known = store()
    orphan = store()
    StoredFile.objects.filter(id=orphan.id).delete()
    assert files.sweep_orphans(NOW) == 0
    assert files.sweep_orphans(NOW + 3 * DAY) == 1
    assert stored_names(folder) == [known.name]


def test_the_sweep_needs_no_storage(folder: Path) -> None:
    assert files.sweep_orphans(NOW) == 0


def test_spools_of_processes_that_died_are_swept(folder: Path) -> None:
    spools = folder.parent / "spool"
    spools.mkdir()
    (spools / "dead").write_bytes(b"x")
    assert files.sweep_orphans(NOW) == 0
    old_s = (NOW - 2 * DAY).timestamp()
    os.utime(spools / "dead", (old_s, old_s))
    assert files.sweep_orphans(NOW) == 1


def test_the_storage_moves_what_was_spooled(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    with Spool() as spool:
        spool.write(b"x")
        inode = os.fstat(spool.read_back().fileno()).st_ino
        file = files.save(spool, new_file())
    assert Path(default_storage.path(file.name)).stat().st_ino == inode


def lines(content: bytes) -> list[tuple[int, bytes]]:
    return list(numbered_lines(io.BytesIO(content)))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n\n", []),
        (b"\xef\xbb\xbf", []),
        (b"a", [(1, b"a")]),
        (b"a\nb\n", [(1, b"a"), (2, b"b")]),
        (b"a\r\nb\r\n", [(1, b"a"), (2, b"b")]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", [(1, b"a"), (2, b"\xef\xbb\xbfb")]),
        (b"\n  \t\r\n\na\n\nb", [(4, b"a"), (6, b"b")]),
    ],
)
def test_lines_are_numbered_as_they_stand(
    content: bytes, expected: list[tuple[int, bytes]]
) -> None:
    assert lines(content) == expected


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_of_the_longest_length_is_whole(monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 10)
    assert lines(b"a" * 10 + end + b"b") == (
        [(1, b"a" * 10), (2, b"b")] if end else [(1, b"a" * 10 + b"b")]
    )


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"").rstrip(b"\r"))))
def test_a_longer_line_is_cut_and_still_longer(content: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "MAX_LINE_BYTES", 10)
        found = lines(b"x\n" + b"\n".join(content))
    expected = {number: line for number, line in enumerate(content, 2) if line.strip()}
    assert [number for number, _ in found[1:]] == list(expected)
    for number, line in found[1:]:
        assert line == expected[number] or (10 < len(line) <= 12 < len(expected[number]))
