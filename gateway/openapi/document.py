"""The OpenAPI document, put together from its parts."""

from __future__ import annotations

from typing import Any

from gateway import __version__
from gateway.openapi import anthropic, batches, chat, files, operations, responses_api, stored
from gateway.openapi.responses import HEADERS
from gateway.openapi.schemas import component_schemas

# A new family of routes is added here, and nowhere else.
_PARTS = (
    anthropic.part,
    batches.anthropic_part,
    chat.part,
    responses_api.part,
    stored.part,
    batches.shared_part,
    files.part,
    operations.part,
)

_DESCRIPTION = """\
Open models behind the APIs that clients speak already: Anthropic's and OpenAI's.

`anthropic-version` and `anthropic-beta` headers and `?beta=true` may be sent. Paths work with
`/v1` doubled or left out, and with `/anthropic` before it. Bodies must be JSON in UTF-8, say so
in `content-type`, and come uncompressed.

What a team used and paid, and its keys, are in the control API, which has a document of its own at
`/control/v1/openapi.json`."""


def build() -> dict[str, Any]:
    """Return the document: the same one in every process of a version."""
    parts = [make() for make in _PARTS]
    paths: dict[str, Any] = {}
    for part in parts:
        for path, operations_of in part.paths.items():
            paths.setdefault(path, {}).update(
                (method, {"tags": [part.name], **operation})
                for method, operation in operations_of.items()
            )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tandem",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": part.name, "description": part.description} for part in parts],
        "security": [{"apiKey": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": component_schemas(model for part in parts for model in part.models),
            "headers": HEADERS,
            "securitySchemes": {
                "apiKey": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "x-api-key",
                    "description": "Counts where both are sent.",
                },
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }
