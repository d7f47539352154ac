"""Every public route of the API, on one page. The admin's are in `gateway.urls`."""

from __future__ import annotations

import re
from typing import NamedTuple

from gateway.batches.anthropic.consumers import (
    CancelMessageBatch,
    CreateMessageBatch,
    ListMessageBatches,
    MessageBatch,
    MessageBatchResults,
)
from gateway.batches.consumers import (
    BatchResultLines,
    BatchResults,
    CancelBatch,
    CreateBatch,
    ListBatches,
    OneBatch,
)
from gateway.dialects.anthropic.consumers import (
    CountTokensConsumer,
    MessagesConsumer,
    ModelConsumer,
    ModelsConsumer,
)
from gateway.dialects.chat.consumers import ChatConsumer
from gateway.dialects.responses.consumers import InputTokensConsumer, ResponsesConsumer
from gateway.files.consumers import (
    FileConsumer,
    FileContentConsumer,
    ListFilesConsumer,
    UploadFileConsumer,
)
from gateway.health import Alive, Ready
from gateway.http.consumer import ApiConsumer, NotFound
from gateway.http.upload import UploadConsumer
from gateway.metrics import Metrics
from gateway.openapi.consumer import OpenApi
from gateway.responses.consumers import (
    CancelResponseConsumer,
    DeleteResponseConsumer,
    EventsConsumer,
    InputItemsConsumer,
    ListResponsesConsumer,
    ResponseConsumer,
)
from gateway.responses.stream_consumers import (
    CreateStreamConsumer,
    ListStreamsConsumer,
    MeConsumer,
    StreamConsumer,
)


class Route(NamedTuple):
    """One route: the path after normalisation, and who answers it.

    A path may have several, one after another, for different methods.
    """

    path: str
    consumer: type[ApiConsumer]


ROUTES = (
    Route("/v1/messages", MessagesConsumer),
    Route("/v1/messages/count_tokens", CountTokensConsumer),
    Route("/v1/messages/batches", CreateMessageBatch),
    Route("/v1/messages/batches", ListMessageBatches),
    Route("/v1/messages/batches/{batch}/cancel", CancelMessageBatch),
    Route("/v1/messages/batches/{batch}/results", MessageBatchResults),
    Route("/v1/messages/batches/{batch}", MessageBatch),
    Route("/v1/chat/completions", ChatConsumer),
    Route("/v1/models", ModelsConsumer),
    Route("/v1/models/{model}", ModelConsumer),
    Route("/v1/batches", CreateBatch),
    Route("/v1/batches", ListBatches),
    Route("/v1/batches/{batch}/cancel", CancelBatch),
    Route("/v1/batches/{batch}/results.jsonl", BatchResultLines),
    Route("/v1/batches/{batch}/results", BatchResults),
    Route("/v1/batches/{batch}", OneBatch),
    Route("/v1/files", UploadFileConsumer),
    Route("/v1/files", ListFilesConsumer),
    Route("/v1/files/{file_id}/content", FileContentConsumer),
    Route("/v1/files/{file_id}", FileConsumer),
    Route("/v1/responses", ResponsesConsumer),
    Route("/v1/responses", ListResponsesConsumer),
    Route("/v1/responses/input_tokens", InputTokensConsumer),
    Route("/v1/responses/events", EventsConsumer),
    Route("/v1/responses/{response_id}/cancel", CancelResponseConsumer),
    Route("/v1/responses/{response_id}/input_items", InputItemsConsumer),
    Route("/v1/responses/{response_id}", ResponseConsumer),
    Route("/v1/responses/{response_id}", DeleteResponseConsumer),
    Route("/v1/streams", CreateStreamConsumer),
    Route("/v1/streams", ListStreamsConsumer),
    Route("/v1/streams/{stream_id}", StreamConsumer),
    Route("/v1/auth/me", MeConsumer),
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
_WITHOUT_VERSION = re.compile(
    r"^/(?:auth/me|batches|chat/completions|files|messages|models|responses|streams)(?:/|$)"
)


def _pattern(path: str) -> re.Pattern[str]:
    # A model's id may hold slashes, and what people send as one may hold anything.
    pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(path)) + "/?"
    return re.compile(pattern, re.DOTALL)


_PATTERNS: dict[re.Pattern[str], list[type[ApiConsumer]]] = {}
for _route in ROUTES:
    _PATTERNS.setdefault(_pattern(_route.path), []).append(_route.consumer)


def normalise(path: str) -> str:
    """Return the path as ROUTES spells it: `/v1/v1/models` and `/models` mean `/v1/models`."""
    path = _SLASHES.sub("/", path)
    prefix = _PREFIX.match(path)
    rest = path[prefix.end() :] if prefix else path
    if len(rest) != len(path) or _WITHOUT_VERSION.match(path):
        return "/v1" + rest
    return path


def find(path: str, method: str = "") -> tuple[type[ApiConsumer], dict[str, str]] | None:
    """Return who answers a path, with the path's arguments; None if it is not the API's.

    Of several the first that takes the method answers; if none does, it is refused with the
    methods of all of them.
    """
    normal = normalise(path)
    for pattern, consumers in _PATTERNS.items():
        if match := pattern.fullmatch(normal):
            fit = (one for one in consumers if not one.methods or method in one.methods)
            return next(fit, None) or _refusing(consumers), match.groupdict()
    return (NotFound, {}) if normal.startswith("/v1") else None


def _refusing(consumers: list[type[ApiConsumer]]) -> type[ApiConsumer]:
    """Return the first, with the methods of all."""
    if len(consumers) == 1:
        return consumers[0]
    methods = tuple(dict.fromkeys(method for one in consumers for method in one.methods))
    return type(consumers[0].__name__, (consumers[0],), {"methods": methods})


def is_upload(path: str, method: str) -> bool:
    """Whether the body of a request stays on the disk."""
    found = find(path, method)
    return found is not None and issubclass(found[0], UploadConsumer)
