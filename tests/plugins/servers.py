"""Gives the tests a PostgreSQL and a Redis-protocol server, before Django reads its settings.

They are the embedded ones, unless TEST_DATABASE_URL and TEST_REDIS_URL name others. No setting of
the caller's own environment reaches the tests.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.config import Config
from gateway.supervise.embedded import start_embedded


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Set the environment; around pytest-django, which reads the settings in the same hook."""
    # Undone when pytest ends, however it ends.
    stack = ExitStack()
    early_config.add_cleanup(stack.close)
    data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-tests-")))
    database_url = os.environ.get("TEST_DATABASE_URL")
    redis_url = os.environ.get("TEST_REDIS_URL")
    if not (database_url and redis_url):
        embedded = stack.enter_context(start_embedded(data_dir))
        database_url = database_url or embedded.database_url
        redis_url = redis_url or embedded.redis_url
    for name in Config.model_fields:
        os.environ.pop(name, None)
        os.environ.pop(f"{name}_FILE", None)
    os.environ |= {
        "DATA_DIR": str(data_dir),
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "REDIS_PREFIX": f"test-{secrets.token_hex(4)}",
        "SECRET_KEY": secrets.token_urlsafe(48),
    }
    return (yield)
