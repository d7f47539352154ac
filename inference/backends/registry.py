"""Which backend runs a model."""

from __future__ import annotations

from pathlib import Path

from inference.backends.port import Backend
from inference.backends.scripted import ScriptedBackend
from inference.backends.vllm import VllmBackend
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError


def build_backend(entry: ModelEntry, models_dir: Path) -> Backend:
    """Return the model's backend, not started. Raises `TandemError` if it has none."""
    match entry.backend:
        case "vllm":
            return VllmBackend(entry, models_dir)
        case "scripted":
            return ScriptedBackend(entry)
    raise TandemError(
        ErrorCode.ENGINE_FAILED, f"{entry.id} names an unknown backend, {entry.backend!r}"
    )
