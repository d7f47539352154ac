"""Who answers behind the socket, by the process's role."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from gateway import front
from gateway.front import Front
from gateway.routes import find


@pytest.mark.parametrize(
    ("role", "path", "reached"),
    [
        *((role, "/control/v1/activity", "django") for role in ("all", "api", "admin")),
        *((role, "/control/", "django") for role in ("all", "api", "admin")),
        *(("all", path, "django") for path in ("/", "/admin/", "/controls")),
        *(("api", path, "api") for path in ("/", "/admin/", "/controls", "/static/x.css")),
        *(("admin", path, "django") for path in ("/", "/admin/", "/v1/messages")),
        *((role, "/v1/messages", "api") for role in ("all", "api")),
    ],
)
async def test_it_sends_each_path_where_the_role_allows(
    monkeypatch: pytest.MonkeyPatch, role: str, path: str, reached: str
) -> None:
    reaches: list[str] = []
    consumer = Mock(return_value=AsyncMock(side_effect=lambda *_: reaches.append("api")))
    django = AsyncMock(side_effect=lambda *_: reaches.append("django"))

    def find_stand_in(wanted: str) -> Any:
        return find(wanted) and (consumer, {})

    monkeypatch.setattr(front, "find", find_stand_in)
    monkeypatch.setattr(front, "NotFound", consumer)
    services = Mock(ready=AsyncMock())
    await Front(services, django, role)({"path": path}, AsyncMock(), AsyncMock())
    assert reaches == [reached]
