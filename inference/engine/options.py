"""What an engine worker needs to know, from Django's settings."""

from __future__ import annotations

from pathlib import Path

import msgspec
from django.conf import settings

from inference.transport.options import TransportOptions


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The models to serve, where their weights are, and how to reach the gateways."""

    models: tuple[str, ...]
    models_dir: Path
    stall_after_s: float
    transport: TransportOptions

    @classmethod
    def from_settings(cls) -> EngineOptions:
        """Read `settings.TANDEM` (a `gateway.config.Config`, which this app may not import)."""
        config = settings.TANDEM
        return cls(
            models=tuple(config.ENGINE_MODELS),
            models_dir=config.DATA_DIR / "models",
            stall_after_s=config.STALL_AFTER_S,
            transport=transport_options(),
        )


def transport_options() -> TransportOptions:
    """The transport's share of `settings.TANDEM`."""
    config = settings.TANDEM
    return TransportOptions(
        redis_url=settings.REDIS_URL,
        prefix=config.REDIS_PREFIX,
        heartbeat_s=config.HEARTBEAT_S,
        dead_after_s=config.DEAD_AFTER_S,
        enqueue_wait_s=config.ENQUEUE_WAIT_S,
    )
