"""Django's setting for where the bytes of files lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from gateway.config import LOCAL_STORAGE


def storage_settings(backend: str, options: str, data_dir: Path) -> dict[str, Any]:
    """Return the default storage's setting; on a local disk only its owner can read it."""
    chosen: dict[str, Any] = msgspec.json.decode(options) if options else {}
    if backend == LOCAL_STORAGE:
        chosen = {
            "location": str(data_dir / "files"),
            "file_permissions_mode": 0o600,
            "directory_permissions_mode": 0o700,
        } | chosen
    return {"BACKEND": backend, "OPTIONS": chosen}
