"""The install's secret key: given by the operator, or made once and kept in the data directory."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from gateway.config import Config, ConfigError


def secret_key(config: Config) -> str:
    """Return SECRET_KEY, making and keeping one if none is set; safe in several processes.

    Raises `ConfigError` if the data directory cannot hold one.
    """
    if config.SECRET_KEY:
        return config.SECRET_KEY
    path = config.DATA_DIR / "secret_key"
    try:
        if not path.exists():
            _make(path)
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(
            f"Tandem cannot start, a setting is wrong:\n"
            f"  DATA_DIR: cannot keep a secret key in {path}: {error.strerror}"
        ) from error


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and linked into place: a reader sees the whole key or none, and the first
    # of several processes wins.
    with NamedTemporaryFile("w", dir=path.parent, prefix="secret_key.", encoding="utf-8") as draft:
        draft.write(secrets.token_urlsafe(48))
        draft.flush()
        with suppress(FileExistsError):
            os.link(draft.name, path)
