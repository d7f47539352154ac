"""What one family of routes adds to the document."""

from __future__ import annotations

from typing import NamedTuple

from gateway.openapi.schemas import Model, Schema


class Part(NamedTuple):
    """A tag, the operations under it by path and method, and the models that they refer to."""

    name: str
    description: str
    paths: dict[str, dict[str, Schema]]
    models: tuple[Model, ...]
