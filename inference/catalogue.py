"""The catalogue of models as the rest of the code sees it: frozen entries in a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from django.db import DatabaseError, connection

from inference.mcp.entry import McpServerEntry
from inference.models import McpServer, Model, Upstream
from inference.upstreams import UpstreamEntry


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One enabled model. The fields mean what `inference.models.Model` says they mean."""

    id: str
    display_name: str
    aliases: tuple[str, ...]
    backend: str
    weights: str
    context_tokens: int
    capacity: int
    max_waiting: int
    workers: int
    engine_options: dict[str, Any]
    ttft_target_ms: int | None = None
    itl_target_ms: int | None = None
    ttft_target_factor: float = 2.5
    itl_target_factor: float = 2.0
    kv_offload_gib: float = 0
    kv_offload_dir: str = ""
    upstream: UpstreamEntry | None = None
    upstream_model: str = ""
    upstream_options: dict[str, Any] = {}
    fallback: str = ""
    vision: bool = False
    images_without_vision: str = "placeholder"
    reasoning: str = "none"
    reasoning_parser: str = ""
    tool_parser: str = ""
    describe_tools: bool = False
    mcp_servers: tuple[McpServerEntry, ...] = ()
    offer_mcp_tools: bool = True
    tool_recursion_limit: int = 10
    chat_template: str = ""
    default_sampling: dict[str, float] = {}
    canary_prompt: str
    canary_expect: str
    created_at: datetime

    @property
    def calls_tools(self) -> bool:
        """Whether the model calls tools where it may; one of vLLM does so by its parser only."""
        return self.backend != "vllm" or bool(self.tool_parser)


class Catalogue:
    """An immutable snapshot of the enabled models, found by id or alias whatever the case."""

    def __init__(self, entries: Iterable[ModelEntry]) -> None:
        self.entries = tuple(entries)
        self._by_name: dict[str, ModelEntry] = {}
        for entry in self.entries:
            for alias in entry.aliases:
                self._by_name.setdefault(alias.lower(), entry)
        # An id always wins over another model's alias.
        for entry in self.entries:
            self._by_name[entry.id.lower()] = entry

    def find(self, name: str) -> ModelEntry | None:
        """Return the model of that id or alias, or None."""
        return self._by_name.get(name.lower())


def load_catalogue() -> Catalogue:
    """Read the enabled models from the database, newest first."""
    return Catalogue(
        ModelEntry(
            id=row.id,
            display_name=row.display_name or row.id,
            aliases=tuple(row.aliases),
            backend=row.backend,
            weights=row.weights,
            context_tokens=row.context_tokens,
            capacity=row.capacity,
            max_waiting=row.max_waiting,
            workers=row.workers,
            engine_options=row.engine_options,
            ttft_target_ms=row.ttft_target_ms,
            itl_target_ms=row.itl_target_ms,
            ttft_target_factor=row.ttft_target_factor,
            itl_target_factor=row.itl_target_factor,
            kv_offload_gib=row.kv_offload_gib,
            kv_offload_dir=row.kv_offload_dir,
            upstream=_upstream(row.upstream),
            upstream_model=row.upstream_model,
            upstream_options=row.upstream_options,
            fallback=row.fallback_id or "",
            vision=row.vision,
            images_without_vision=row.images_without_vision,
            reasoning=row.reasoning,
            reasoning_parser=row.reasoning_parser,
            tool_parser=row.tool_parser,
            describe_tools=row.describe_tools,
            mcp_servers=tuple(_server(each) for each in row.mcp_servers.all() if each.enabled),
            offer_mcp_tools=row.offer_mcp_tools,
            tool_recursion_limit=row.tool_recursion_limit,
            chat_template=row.chat_template,
            default_sampling=row.default_sampling,
            canary_prompt=row.canary_prompt,
            canary_expect=row.canary_expect,
            created_at=row.created_at,
        )
        for row in Model.objects.filter(enabled=True)
        .select_related("upstream")
        .prefetch_related("mcp_servers")
        .order_by("-created_at", "id")
    )


def reload_entry(entry: ModelEntry) -> ModelEntry:
    """Return a model as the catalogue has it now; as it was, if it is gone or cannot be read.

    For threads that read rarely: the connection would be stale by the next time, and is closed.
    """
    try:
        return load_catalogue().find(entry.id) or entry
    except DatabaseError:
        return entry
    finally:
        connection.close()


def _upstream(row: Upstream | None) -> UpstreamEntry | None:
    return None if row is None else _upstream_entry(row)


def _upstream_entry(row: Upstream) -> UpstreamEntry:
    return UpstreamEntry(
        name=row.name,
        base_url=row.base_url,
        key=row.key,
        connect_timeout_s=row.connect_timeout_s,
        read_timeout_s=row.read_timeout_s,
        retries=row.retries,
        requests_per_minute=row.requests_per_minute,
    )


def load_upstreams() -> dict[str, UpstreamEntry]:
    """Read the upstreams from the database, whether or not any model uses them, by name."""
    return {row.name: _upstream_entry(row) for row in Upstream.objects.all()}


def load_mcp_servers() -> dict[str, McpServerEntry]:
    """Read the MCP servers from the database, whether or not they are enabled, by name."""
    return {row.name: _server(row) for row in McpServer.objects.all()}


def _server(row: McpServer) -> McpServerEntry:
    return McpServerEntry(
        name=row.name,
        transport=row.transport,
        command=tuple(row.command),
        url=row.url,
        secrets=row.secrets,
        allowed_tools=tuple(row.allowed_tools),
        timeout_s=row.timeout_s,
        max_output_bytes=row.max_output_bytes,
    )
