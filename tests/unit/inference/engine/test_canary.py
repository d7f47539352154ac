"""The canary, on scripted engines."""

from __future__ import annotations

from typing import Any

import pytest

from inference.backends.scripted import ScriptedBackend
from inference.catalogue import ModelEntry
from inference.engine import canary
from inference.engine.canary import ask_canary, run_canary
from tests.contracts.requests import make_entry


def _entry(**script: Any) -> ModelEntry:
    return make_entry(
        engine_options=script,
        canary_prompt="What is the capital of France?",
        canary_expect="Paris",
    )


async def test_it_passes_an_engine_that_answers_rightly() -> None:
    entry = _entry(text="It is Paris.")

    assert await run_canary(ScriptedBackend(entry), entry) is None


async def test_it_stops_an_engine_that_answers_nonsense() -> None:
    entry = _entry(text="Cheese cheese cheese")

    reason = await run_canary(ScriptedBackend(entry), entry)

    assert reason == 'canary failed: expected "Paris" in "Cheese cheese cheese"'


async def test_it_stops_an_engine_that_fails() -> None:
    entry = _entry(fail_at=1)

    reason = await run_canary(ScriptedBackend(entry), entry)

    assert reason == "canary failed: the script says to fail here"


async def test_it_stops_an_engine_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "_TIMEOUT_S", 0.05)
    entry = _entry(hang_at=1)
    backend = ScriptedBackend(entry)

    reason = await run_canary(backend, entry)

    assert reason == "canary failed: no answer within 0 s"
    assert backend.stats().running == 0


async def test_it_asks_nothing_without_a_canary() -> None:
    entry = make_entry()
    backend = ScriptedBackend(entry)

    assert await run_canary(backend, entry) is None
    assert backend.stats().progress == 0


async def test_it_asks_for_few_tokens() -> None:
    entry = _entry(text="a", tokens=1000)
    backend = ScriptedBackend(entry)

    await ask_canary(backend, entry)

    assert backend.stats().progress == 32
