"""Every WebSocket, on one page: of batches for callers and operators, and of the dashboard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from channels.sessions import CookieMiddleware
from django.urls import path, re_path

from gateway.live.access import is_own_page, names_origin
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
    batches = AuthMiddlewareStack(
        URLRouter(
            [
                path("ws/batches/<str:batch_id>", watched),
                # Where the cookie of an operator's session is sent to.
                path("admin/ws/batches/<str:batch_id>", watched),
                re_path("", _refuse),  # type: ignore[arg-type]
            ]
        )
    )
    live = CookieMiddleware(Live.as_asgi(hub=Hub(transport), database=DatabaseThreads(1)))

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        # Other sites' pages must not use an operator's session, whatever ALLOWED_HOSTS allows. Only
        # browsers name an origin, and always do; a program that sends its key has none.
        own_page = is_own_page(scope["headers"])
        if scope["path"] != LIVE_PATH and (own_page or not names_origin(scope["headers"])):
            await batches(scope, receive, send)
        elif scope["path"] == LIVE_PATH and own_page and role != "api":
            await live(scope, receive, send)
        else:
            await _refuse(scope, receive, send)

    return application


async def _refuse(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Close a WebSocket before it opens."""
    await receive()
    await send({"type": "websocket.close"})
