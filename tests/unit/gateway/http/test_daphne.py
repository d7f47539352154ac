"""What Daphne makes of requests. The acceptance tests send it what it must leave alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from daphne import http_protocol

from gateway.http.daphne import StrictRequest, be_strict


def test_every_new_connection_makes_strict_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "WebRequest", http_protocol.WebRequest)
    be_strict()
    channel = http_protocol.HTTPFactory(SimpleNamespace()).buildProtocol(None)
    assert channel.requestFactory is StrictRequest
