"""Every WebSocket, on one page: of batches for callers and operators, and of the dashboard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

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
    batch = BatchProgress.as_asgi(services=services)
    routes = []
    if role != "admin":
        routes.append(path("ws/batches/<str:batch_id>", batch))
    if role != "api":
        live = Live.as_asgi(hub=Hub(transport), database=DatabaseThreads(1))
        routes.append(path("admin/ws/batches/<str:batch_id>", batch))
        routes.append(path(LIVE_PATH.removeprefix("/"), live))
    routes.append(re_path("", _refuse))  # type: ignore[arg-type]
    routed = CookieMiddleware(URLRouter(routes))

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        # Other sites' pages must not use an operator's session, whatever ALLOWED_HOSTS allows. Only
        # browsers name an origin, and always do; a program that sends its key has none.
        is_program = not names_origin(scope["headers"]) and scope["path"] != LIVE_PATH
        is_let_in = is_program or is_own_page(scope["headers"])
        await (routed if is_let_in else _refuse)(scope, receive, send)

    return application


async def _refuse(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Close a WebSocket before it opens."""
    await receive()
    await send({"type": "websocket.close"})
