"""What only a real engine can show. Run with the default model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from inference.backends.vllm import VllmBackend
from inference.errors import ErrorCode, TandemError
from inference.events import Failed, Finished, FinishReason, TextDelta
from tests.conftest import Eventually
from tests.contracts.conftest import Subject
from tests.contracts.requests import collect, make_request, text_of

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

