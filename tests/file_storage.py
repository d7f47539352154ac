"""A storage of files for one test."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def use_folder(settings: Any, folder: Path) -> None:
    """Have files stored below a folder, and written aside there."""
    settings.TANDEM = settings.TANDEM.model_copy(update={"DATA_DIR": folder})
    default = settings.STORAGES["default"]
    options = default["OPTIONS"] | {"location": str(folder / "files")}
    settings.STORAGES = settings.STORAGES | {"default": default | {"OPTIONS": options}}
