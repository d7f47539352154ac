"""What every test may use. `tests.plugins.servers` has set the environment before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import HealthCheck, settings
from pytest_django import Settings

from gateway.config import Config

# How fast an example runs is the machine's matter, and no test's.
settings.register_profile("tandem", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tandem")

Eventually = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
def eventually() -> Eventually:
    """Return a function that waits until a condition holds, and fails if it never does."""

    async def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "the condition never held"
            await asyncio.sleep(0.01)

    return wait


@pytest.fixture(autouse=True)
def _cheap_passwords(settings: Settings) -> None:
    """Make an account in a millisecond instead of half a second."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Remove every setting from the environment, and return the means to set some."""
    for name in Config.model_fields:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)
    return monkeypatch
