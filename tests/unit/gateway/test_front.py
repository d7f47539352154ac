"""Who answers a path that is not the API's, by the process's role."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway import front
from gateway.http.consumer import ApiConsumer, NotFound
from gateway.services import Services


class PlayedServices:
    async def ready(self) -> None:
        """Is ready."""


async def answerer(monkeypatch: pytest.MonkeyPatch, role: str, path: str) -> str:
    """Return who answers: `django` or the consumer's name."""
    answered: list[str] = []

    async def django(scope: Any, receive: Any, send: Any) -> None:
        answered.append("django")

    async def consume(consumer: ApiConsumer, scope: Any, receive: Any, send: Any) -> None:
        answered.append(type(consumer).__name__)

    monkeypatch.setattr(ApiConsumer, "__call__", consume)
    services = cast("Services", PlayedServices())
    await front.Front(services, django, role)({"path": path, "method": "GET"}, None, None)
    (who,) = answered
    return who


@pytest.mark.parametrize("role", ["all", "api", "admin"])
async def test_every_role_has_the_landing_page(monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    assert await answerer(monkeypatch, role, "/") == "django"


@pytest.mark.parametrize("role", ["all", "api", "admin"])
async def test_every_role_says_that_it_is_alive(monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    assert await answerer(monkeypatch, role, "/api/hello") == "Alive"


@pytest.mark.parametrize(
    ("role", "path", "who"),
    [
        ("all", "/admin/", "django"),
        ("admin", "/admin/", "django"),
        ("api", "/admin/", NotFound.__name__),
        ("api", "/static/x.css", NotFound.__name__),
        *((role, "/control/v1/activity", "django") for role in ("all", "api", "admin")),
        ("api", "/controls", NotFound.__name__),
        ("all", "/v1/models", "ModelsConsumer"),
        ("api", "/v1/models", "ModelsConsumer"),
        ("admin", "/v1/models", "django"),
    ],
)
async def test_a_role_answers_its_own_paths(
    monkeypatch: pytest.MonkeyPatch, role: str, path: str, who: str
) -> None:
    assert await answerer(monkeypatch, role, path) == who
