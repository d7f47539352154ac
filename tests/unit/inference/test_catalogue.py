"""The catalogue's entries beside the table that they are read from."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.db import DatabaseError, IntegrityError, connection

from inference import catalogue
from inference.catalogue import ModelEntry, load_catalogue, load_mcp_servers, reload_entry
from inference.mcp.entry import McpServerEntry
from inference.models import McpServer, Model, Upstream
from inference.upstreams import UpstreamEntry

_ROW: dict[str, Any] = {
    "id": "tiny",
    "display_name": "Tiny",
    "aliases": ["fast"],
    "backend": "scripted",
    "weights": "tiny-weights",
    "context_tokens": 2048,
    "capacity": 3,
    "max_waiting": 4,
    "workers": 5,
    "ttft_target_ms": 600,
    "itl_target_ms": 70,
    "ttft_target_factor": 8.5,
    "itl_target_factor": 9.5,
    "engine_options": {"text": "Hello"},
    "kv_offload_gib": 1.5,
    "kv_offload_dir": "/srv/kv",
    "upstream_model": "tiny-there",
    "upstream_options": {"system": "Be brief."},
    "vision": True,
    "images_without_vision": "refuse",
    "reasoning": "optional",
    "reasoning_parser": "qwen3",
    "tool_parser": "hermes",
    "describe_tools": True,
    "offer_mcp_tools": False,
    "tool_recursion_limit": 7,
    "chat_template": "own.jinja",
    "default_sampling": {"top_p": 0.5},
    "canary_prompt": "Say yes.",
    "canary_expect": "yes",
}


_UPSTREAM: dict[str, Any] = {
    "name": "there",
    "base_url": "https://there.example/v1",
    "key": "${env:THEIR_KEY}",
    "connect_timeout_s": 3.5,
    "read_timeout_s": 4.5,
    "retries": 6,
    "requests_per_minute": 70,
}


_SERVER: dict[str, Any] = {
    "name": "clock",
    "transport": "http",
    "command": ["clock", "--now"],
    "url": "https://clock.example/mcp",
    "secrets": {"Authorization": "Bearer ${env:CLOCK_KEY}"},
    "allowed_tools": ["now"],
    "timeout_s": 2.5,
    "max_output_bytes": 100,
}
_FROZEN_SERVER = _SERVER | {"command": ("clock", "--now"), "allowed_tools": ("now",)}


@pytest.mark.django_db
def test_an_entry_says_all_that_its_row_says() -> None:
    row = Model.objects.create(
        **_ROW,
        upstream=Upstream.objects.create(**_UPSTREAM),
        fallback=Model.objects.create(id="other", context_tokens=1, enabled=False),
    )
    row.mcp_servers.add(
        McpServer.objects.create(**_SERVER),
        McpServer.objects.create(name="away", command=["away"], enabled=False),
    )

    (entry,) = load_catalogue().entries

    said = msgspec.structs.asdict(entry)
    assert said == _ROW | {
        "aliases": ("fast",),
        "upstream": UpstreamEntry(**_UPSTREAM),
        "fallback": "other",
        "mcp_servers": (McpServerEntry(**_FROZEN_SERVER),),
        "created_at": row.created_at,
    }
    assert not [
        field.name
        for field in msgspec.structs.fields(ModelEntry)
        if said[field.name] == field.default
    ]


@pytest.mark.django_db
def test_no_row_keeps_prefixes_in_a_folder_that_nothing_leads_to() -> None:
    with pytest.raises(IntegrityError, match="kv_offload_dir_needs_memory"):
        Model.objects.create(**(_ROW | {"kv_offload_gib": 0}))


@pytest.mark.django_db
def test_an_entry_is_read_again_and_kept_where_it_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The test's own connection has to outlive it.
    monkeypatch.setattr(connection, "close", lambda: None)
    row = Model.objects.create(id="tiny", context_tokens=1)
    (before,) = load_catalogue().entries
    Model.objects.update(context_tokens=2)
    assert reload_entry(before).context_tokens == 2

    row.delete()
    assert reload_entry(before) is before

    def fail() -> None:
        raise DatabaseError

    monkeypatch.setattr(catalogue, "load_catalogue", fail)
    assert reload_entry(before) is before


@pytest.mark.django_db
def test_a_server_of_the_catalogue_is_found_enabled_or_not() -> None:
    McpServer.objects.create(**_SERVER, enabled=False)
    assert load_mcp_servers() == {"clock": McpServerEntry(**_FROZEN_SERVER)}
