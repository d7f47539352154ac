"""Files and principals for OpenAI's batches."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uuid_utils

from gateway.keys import Principal
from jobs.files import NewFile, Spool, save
from jobs.models import StoredFile
from tests.file_storage import use_folder
from tests.work import KEY

Store = Callable[..., StoredFile]


@pytest.fixture
def principal() -> Principal:
    """Return the key of team 1."""
    return Principal(key_id=KEY, key_name="laptop", team_id=1, team_name="blue")


@pytest.fixture
def store(db: None, settings: Any, tmp_path: Path) -> Store:
    """Return a function that stores a file of team 1."""
    use_folder(settings, tmp_path)

    def make(content: bytes, **fields: Any) -> StoredFile:
        known: dict[str, Any] = {
            "id": uuid.UUID(str(uuid_utils.uuid7())),
            "team_id": 1,
            "key_id": None,
            "filename": "a.jsonl",
            "purpose": StoredFile.Purpose.BATCH,
        }
        with Spool() as spool:
            spool.write(content)
            return save(spool, NewFile(**(known | fields)))

    return make
