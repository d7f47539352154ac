"""The catalogue's entries beside the table that they are read from."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.db import IntegrityError

from inference.catalogue import ModelEntry, load_catalogue
from inference.models import Model

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
    "vision": True,
    "images_without_vision": "refuse",
    "reasoning": "optional",
    "reasoning_parser": "qwen3",
    "tool_parser": "hermes",
    "describe_tools": True,
    "chat_template": "own.jinja",
    "default_sampling": {"top_p": 0.5},
    "canary_prompt": "Say yes.",
    "canary_expect": "yes",
}


@pytest.mark.django_db
def test_an_entry_says_all_that_its_row_says() -> None:
    row = Model.objects.create(**_ROW)

    (entry,) = load_catalogue().entries

    said = msgspec.structs.asdict(entry)
    assert said == _ROW | {"aliases": ("fast",), "created_at": row.created_at}
    assert not [
        field.name
        for field in msgspec.structs.fields(ModelEntry)
        if said[field.name] == field.default
    ]


@pytest.mark.django_db
def test_no_row_keeps_prefixes_in_a_folder_that_nothing_leads_to() -> None:
    with pytest.raises(IntegrityError, match="kv_offload_dir_needs_memory"):
        Model.objects.create(**(_ROW | {"kv_offload_gib": 0}))
