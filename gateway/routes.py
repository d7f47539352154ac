"""Every public route of the API, on one page. The admin's are in `gateway.urls`."""

from __future__ import annotations

import re
from typing import NamedTuple

from gateway.dialects.anthropic.consumers import (
    CountTokensConsumer,
    MessagesConsumer,
    ModelConsumer,
    ModelsConsumer,
)
from gateway.health import Alive, Ready
from gateway.http.consumer import ApiConsumer, NotFound
from gateway.metrics import Metrics
from gateway.openapi.consumer import OpenApi


class Route(NamedTuple):
    """One route: the path after normalisation, and who answers it."""

    path: str
    consumer: type[ApiConsumer]


ROUTES = (
    Route("/v1/messages", MessagesConsumer),
    Route("/v1/messages/count_tokens", CountTokensConsumer),
    Route("/v1/models", ModelsConsumer),
    Route("/v1/models/{model}", ModelConsumer),
    Route("/healthz", Alive),
    Route("/readyz", Ready),
    Route("/metrics", Metrics),
    Route("/api/hello", Alive),
    Route("/openapi.json", OpenApi),
)

# Routes that need no key. Every other one must refuse a request without; a test walks them.
PUBLIC_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/api/hello", "/openapi.json"})

# How people write base URLs: doubled, with the vendor's name, or without the version.
_PREFIX = re.compile(r"^(?:/anthropic)?(?:/v1)*(?=/|$)")
_SLASHES = re.compile("^//+")
_WITHOUT_VERSION = re.compile(r"^/(?:messages|models)(?:/|$)")

_PATTERNS = [
    (
        # A model's id may hold slashes.
        re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(route.path)) + "/?"),
        route.consumer,
    )
    for route in ROUTES
]


def normalise(path: str) -> str:
    """Return the path as ROUTES spells it: `/v1/v1/models` and `/models` mean `/v1/models`."""
    path = _SLASHES.sub("/", path)
    prefix = _PREFIX.match(path)
    rest = path[prefix.end() :] if prefix else path
    if len(rest) != len(path) or _WITHOUT_VERSION.match(path):
        return "/v1" + rest
    return path


def find(path: str) -> tuple[type[ApiConsumer], dict[str, str]] | None:
    """Return who answers a path, with the path's arguments; None if it is not the API's."""
    normal = normalise(path)
    for pattern, consumer in _PATTERNS:
        if match := pattern.fullmatch(normal):
            return consumer, match.groupdict()
    return (NotFound, {}) if normal.startswith("/v1") else None
