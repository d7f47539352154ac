"""Rows, and what they are checked against."""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gateway.batches.rows import LoadImages, Row, RowReader, Terms
from gateway.image_source import ImageSource
from gateway.keys import Principal
from inference.catalogue import Catalogue, ModelEntry
from inference.request import ImagePart
from jobs.pricing import PriceList, PriceVersion

MODEL = "vendor/Seeing-1"
BLIND = "vendor/Blind-1"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TERMS = Terms(
    batch_id=str(uuid.UUID(int=7)),
    principal=Principal(
        key_id=str(uuid.UUID(int=5)), key_name="laptop", team_id=3, team_name="blue"
    ),
    created_at=NOW,
    deadline_at=NOW + timedelta(hours=24),
    catalogue=Catalogue(
        ModelEntry(
            id=name,
            display_name=name,
            aliases=("seeing",) if name == MODEL else (),
            backend="scripted",
            weights="",
            context_tokens=1000,
            capacity=4,
            max_waiting=4,
            workers=1,
            engine_options={},
            vision=name == MODEL,
            canary_prompt="",
            canary_expect="",
            created_at=NOW,
        )
        for name in (MODEL, BLIND)
    ),
    prices=PriceList(
        [
            PriceVersion(
                id=1,
                model=MODEL,
                effective_from=NOW - timedelta(days=1),
                input_micros_per_mtok=1_000_000,
                cached_input_micros_per_mtok=0,
                cache_write_micros_per_mtok=0,
                output_micros_per_mtok=2_000_000,
                flex_permille=500,
                background_permille=500,
                batch_permille=500,
            )
        ]
    ),
    cache_salt="salt",
)
USER = {"role": "user", "content": "hello"}


def messages_body(**fields: Any) -> dict[str, Any]:
    """Return the body of a Messages request."""
    return {"model": MODEL, "max_tokens": 10, "messages": [USER]} | fields


def row(body: object, line: int = 1, custom_id: str = "a") -> Row:
    """Return a row with this body."""
    return Row(line, custom_id, msgspec.json.encode(body))


def no_images(sources: object) -> Future[list[ImagePart]]:
    """Fail: nothing should have asked for images."""
    raise AssertionError(f"asked for images: {sources}")


def reader(endpoint: str, terms: Terms = TERMS, load_images: LoadImages = no_images) -> RowReader:
    """Return a reader of rows for an endpoint."""
    return RowReader(endpoint, terms, load_images)


def picture(sources: list[ImageSource]) -> list[ImagePart]:
    """Return a picture for each source."""
    return [ImagePart("image/png", source.path.encode()) for source in sources]
