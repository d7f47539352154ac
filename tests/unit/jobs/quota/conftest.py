"""A quota for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from django.conf import settings

from tests.unit.jobs.quota.kit import QuotaKit


@pytest.fixture
async def kit() -> AsyncIterator[QuotaKit]:
    kit = QuotaKit(settings.REDIS_URL)
    yield kit
    await kit.close()
