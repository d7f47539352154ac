"""What Daphne makes of requests. The acceptance tests send it what it must leave alone."""

from __future__ import annotations

from io import BytesIO
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from daphne import http_protocol
from daphne.http_protocol import WebRequest

from gateway.http.daphne import StrictRequest, be_strict


def test_every_new_connection_makes_strict_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "WebRequest", http_protocol.WebRequest)
    be_strict(lambda path, method: False)
    channel = http_protocol.HTTPFactory(SimpleNamespace()).buildProtocol(None)
    assert channel.requestFactory is StrictRequest


@pytest.mark.parametrize(
    ("uri", "method", "upload"),
    [
        (b"/v1/files", b"POST", True),
        (b"/v1/%66iles?x=y", b"POST", True),
        (b"/v1/files", b"GET", False),
        (b"/v1/messages", b"POST", False),
        (b"/\xff", b"POST", False),
    ],
)
def test_only_the_bodies_of_uploads_are_kept_from_daphne(
    monkeypatch: pytest.MonkeyPatch, uri: bytes, method: bytes, upload: bool
) -> None:
    monkeypatch.setattr(http_protocol, "WebRequest", http_protocol.WebRequest)
    monkeypatch.setattr(WebRequest, "process", lambda request: request.content.read())
    be_strict(lambda path, method: (path, method) == ("/v1/files", "POST"))
    request = StrictRequest(MagicMock())
    request.method, request.uri, request.path = method, uri, uri.partition(b"?")[0]
    body = request.content = BytesIO(b"body")
    assert request.process() == (b"" if upload else b"body")
    assert request.hand_over() is (body if upload else None)
    assert request.hand_over() is None
