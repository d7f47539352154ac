"""The install's secret key: given by the operator, or made once and kept in the data directory."""

from __future__ import annotations

import os
import secrets

from gateway.config import Config


def secret_key(config: Config) -> str:
    """Return SECRET_KEY, making and keeping one if none is set; safe in several processes."""
    if config.SECRET_KEY:
        return config.SECRET_KEY
    path = config.DATA_DIR / "secret_key"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Written beside and linked into place: a reader sees the whole key or none.
        draft = path.with_name(f"secret_key.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(48), encoding="utf-8")
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)
    return path.read_text(encoding="utf-8").strip()
