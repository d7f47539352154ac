"""What pages read of the engines."""

from __future__ import annotations

import secrets

from django.conf import settings as django_settings
from pytest_django import Settings

from gateway.admin.heartbeats import read_reports
from inference.transport.connection import connect_sync
from inference.transport.keys import Keys


def test_an_engine_of_another_version_is_not_there(settings: Settings) -> None:
    prefix = f"heartbeats-{secrets.token_hex(4)}"
    settings.TANDEM = settings.TANDEM.model_copy(update={"REDIS_PREFIX": prefix})
    keys = Keys(prefix)
    with connect_sync(django_settings.REDIS_URL) as redis:
        redis.sadd(keys.engines, "e1")
        redis.set(keys.engine("e1"), b"nonsense", px=60_000)
    assert read_reports() == []


def test_without_redis_nobody_knows(settings: Settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert read_reports() is None
