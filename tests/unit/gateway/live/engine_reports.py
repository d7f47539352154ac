"""Makes what engines and the catalogue say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gateway.live.heartbeats import Sight
from gateway.live.models import Models
from gateway.live.reading import Reader
from inference.catalogue import ModelEntry
from inference.transport.frames import EngineReport, EngineState

NOW_S = 1_800_000_000.0


def entry(model: str = "m", **fields: Any) -> ModelEntry:
    known: dict[str, Any] = {
        "id": model,
        "display_name": model,
        "aliases": (),
        "backend": "scripted",
        "weights": "",
        "context_tokens": 1000,
        "capacity": 8,
        "max_waiting": 10,
        "workers": 1,
        "engine_options": {},
        "canary_prompt": "",
        "canary_expect": "",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return ModelEntry(**(known | fields))


def models(*entries: ModelEntry) -> Models:
    """Return a catalogue that nobody has to read."""
    made = Models(Reader())
    made.entries = {each.id: each for each in entries}
    return made


def report(engine_id: str = "e", **fields: Any) -> EngineReport:
    known: dict[str, Any] = {
        "engine_id": engine_id,
        "model": "m",
        "host": "h",
        "pid": 1,
        "state": EngineState.READY,
        "capacity": 8,
        "in_flight": 1,
        "kv_use": None,
        "started_at_s": NOW_S - 3600,
    }
    return EngineReport(**(known | fields))


def sight(*reports: EngineReport, **fields: Any) -> Sight:
    known: dict[str, Any] = {
        "reports": {each.engine_id: each for each in reports},
        "silent": set(),
        "queues": [],
        "records_since_s": None,
        "records_dead": 0,
    }
    return Sight(**(known | fields))
