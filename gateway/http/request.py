"""An API request as the consumers see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import uuid_utils


def _new_id() -> str:
    return str(uuid_utils.uuid7())


@dataclass(slots=True)
class ApiRequest:
    """One request: its scope, its body once that has arrived, and the id it is known by."""

    scope: dict[str, Any]
    body: bytes = b""
    id: str = field(default_factory=_new_id)

    @property
    def public_id(self) -> str:
        """The value of the `request-id` header."""
        return f"req_{self.id}"

    @property
    def method(self) -> str:
        """The HTTP method, in capitals."""
        return str(self.scope["method"])

    def header(self, name: bytes) -> bytes | None:
        """Return the first header of that (lower-case) name."""
        for key, value in self.scope["headers"]:
            if key == name:
                return bytes(value)
        return None

    @property
    def query(self) -> list[tuple[str, str]]:
        """The query parameters in order, a repeated one once for each of its values."""
        text = self.scope["query_string"].decode("latin-1")
        return parse_qsl(text, keep_blank_values=True)

    @property
    def api_key(self) -> str | None:
        """The key from `x-api-key`, or else from `Authorization: Bearer`."""
        if key := self.header(b"x-api-key"):
            return key.decode("latin-1").strip()
        scheme, _, key = (self.header(b"authorization") or b"").partition(b" ")
        return key.decode("latin-1").strip() if scheme.lower() == b"bearer" and key else None
