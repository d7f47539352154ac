"""Which backend runs a model."""

from __future__ import annotations

from pathlib import Path

from inference.backends.port import Backend
from inference.backends.scripted import ScriptedBackend
from inference.backends.upstream import UpstreamBackend
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
        case "openai":
            # Its client takes long to import, and most workers need none.
            from inference.backends.openai_upstream import OpenAIProvider

            return UpstreamBackend(entry, OpenAIProvider)
        case "anthropic":
            from inference.backends.anthropic_upstream import AnthropicProvider

            return UpstreamBackend(entry, AnthropicProvider)
    raise TandemError(
        ErrorCode.ENGINE_FAILED, f"{entry.id} names an unknown backend, {entry.backend!r}"
    )
