"""Every WebSocket, on one page: of batches for callers and operators, and of the dashboard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import ParseResult

from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from channels.security.websocket import OriginValidator
from channels.sessions import CookieMiddleware
from django.conf import settings
from django.urls import path, re_path

from gateway.live.access import is_own_page
from gateway.live.consumer import Live
from gateway.live.hub import Hub
from gateway.progress import BatchProgress
from gateway.services import Services
from gateway.threads import DatabaseThreads
from inference.transport.options import TransportOptions

LIVE_PATH = "/admin/live"

Application = Callable[..., Awaitable[None]]


def sockets(services: Services, transport: TransportOptions, role: str) -> Application:
    """Return the application for WebSockets: those that a role has, and a refusal of all others."""
    watched = BatchProgress.as_asgi(services=services)
    batches = _OwnHosts(
        AuthMiddlewareStack(
            URLRouter(
                [
                    path("ws/batches/<str:batch_id>", watched),
                    # Where the cookie of an operator's session is sent to.
                    path("admin/ws/batches/<str:batch_id>", watched),
                    re_path("", _refuse),  # type: ignore[arg-type]
                ]
            )
        ),
        settings.ALLOWED_HOSTS,
    )
    live = CookieMiddleware(Live.as_asgi(hub=Hub(transport), database=DatabaseThreads(1)))

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["path"] != LIVE_PATH:
            await batches(scope, receive, send)
        elif role != "api" and is_own_page(scope["headers"]):
            await live(scope, receive, send)
        else:
            await _refuse(scope, receive, send)

    return application


class _OwnHosts(OriginValidator):  # type: ignore[misc]
    """Keeps other sites' pages from using an operator's session.

    Only browsers name an origin, and always do; a program that sends its key has none.
    """

    def valid_origin(self, parsed_origin: ParseResult | None) -> bool:
        """Take allowed hosts' pages, and what is no page."""
        return parsed_origin is None or self.validate_origin(parsed_origin)


async def _refuse(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Close a WebSocket before it opens."""
    await receive()
    await send({"type": "websocket.close"})
