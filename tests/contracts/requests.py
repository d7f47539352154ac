"""Requests and model entries for tests of backends."""

from __future__ import annotations

import time
import uuid
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from inference.backends.port import Backend
from inference.catalogue import ModelEntry
from inference.events import Event, TextDelta
from inference.request import GenerationRequest, Message, Role, Sampling, TextPart


def make_entry(**fields: Any) -> ModelEntry:
    """Return a catalogue entry; the given fields replace the defaults."""
    defaults: dict[str, Any] = {
        "id": "model-under-test",
        "display_name": "Model under test",
        "aliases": (),
        "backend": "scripted",
        "weights": "",
        "context_tokens": 1024,
        "capacity": 8,
        "max_waiting": 8,
        "workers": 1,
        "engine_options": {},
        "canary_prompt": "",
        "canary_expect": "",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return ModelEntry(**(defaults | fields))


def say(role: Role, *texts: str) -> Message:
    """Return one turn of a conversation."""
    return Message(role=role, parts=tuple(map(TextPart, texts)))


def make_request(
    *messages: str | Message, cache_salt: str | None = None, **sampling: Any
) -> GenerationRequest:
    """Return a request at temperature 0; plain strings are user messages."""
    fields = {"max_tokens": 16, "temperature": 0.0} | sampling
    return GenerationRequest(
        id=str(uuid.uuid4()),
        model="model-under-test",
        messages=tuple(
            say(Role.USER, message) if isinstance(message, str) else message for message in messages
        ),
        sampling=Sampling(**fields),
        deadline_s=time.time() + 60,
        cache_salt=cache_salt,
    )


async def collect(backend: Backend, request: GenerationRequest) -> list[Event]:
    """Run a request to its end and return all of its events."""
    async with aclosing(backend.generate(request)) as events:
        return [event async for event in events]


def text_of(events: list[Event]) -> str:
    """Return the whole text of a run."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))
