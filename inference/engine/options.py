"""What an engine worker needs to know, from Django's settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from django.conf import settings
from django.utils.module_loading import import_string

from inference.engine.work import WorkSource
from inference.mcp.credit import Credit
from inference.transport.options import TransportOptions


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The models to serve, where their weights are, and how to reach the gateways.

    `work_source` makes an engine's source of work, of its engine's id, its model and its host.
    `mcp_hosts_allowed` are private hosts that MCP servers of requests may be at. `make_credit`
    makes what is asked before each further round of an answer that runs tools; None asks nobody.
    """

    models: tuple[str, ...]
    models_dir: Path
    stall_after_s: float
    work_source: Callable[[str, str, str], WorkSource]
    transport: TransportOptions
    mcp_hosts_allowed: tuple[str, ...] = ()
    make_credit: Callable[[], Credit] | None = None

    @classmethod
    def from_settings(cls) -> EngineOptions:
        """Read the settings; `settings.TANDEM` is a `gateway.config.Config`.

        Neither that nor the sources of work and credit may be imported here: they are built upon
        this app.
        """
        config = settings.TANDEM
        return cls(
            models=tuple(config.ENGINE_MODELS),
            models_dir=config.DATA_DIR / "models",
            stall_after_s=config.STALL_AFTER_S,
            work_source=import_string(settings.ENGINE_WORK_SOURCE),
            transport=transport_options(),
            mcp_hosts_allowed=tuple(config.MCP_HOSTS_ALLOWED),
            make_credit=import_string(settings.ENGINE_CREDIT),
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
