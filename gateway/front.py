"""The first thing behind the socket: the API's consumers, or else Django."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from gateway.health import Alive, Ready
from gateway.http.consumer import NotFound
from gateway.http.pace import SEND
from gateway.routes import find
from gateway.services import Services

Application = Callable[..., Awaitable[None]]

# Django's, but of the API: the only pages of Django that a process without the admin has.
_CONTROL = "/control/"


class Front:
    """Sends each request to its consumer, or else to Django, as the process's role allows.

    The API's path has no Django middleware and no database read before the first token.
    """

    def __init__(self, services: Services, django: Application, role: str) -> None:
        self._services = services
        self._django = django
        self._role = role

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Handle one HTTP request."""
        found = find(scope["path"], scope["method"])
        # Clients try whether `/` answers, so every role has that page.
        if found is None and self._role == "api" and not _for_all(scope["path"]):
            found = NotFound, {}
        if found is None or (self._role == "admin" and found[0] not in (Alive, Ready)):
            # Pages that send large files pace themselves by it, as consumers do.
            await self._django(scope | {SEND: send}, receive, send)
            return
        await self._services.ready()
        consumer, arguments = found
        await consumer(self._services, **arguments)(scope, receive, send)


def _for_all(path: str) -> bool:
    return path == "/" or path.startswith(_CONTROL)
