"""Which WebSockets a gateway has, and whose pages may open them."""

from __future__ import annotations

from typing import cast
from unittest.mock import AsyncMock

import pytest
from channels.testing import WebsocketCommunicator

from gateway.live import consumer
from gateway.progress import DENIED
from gateway.services import Services
from gateway.sockets import LIVE_PATH, sockets
from inference.transport.options import TransportOptions

PATIENCE_S = 60
BATCH = "/ws/batches/batch_1"
ADMIN_BATCH = f"/admin{BATCH}"
OWN = (b"origin", b"http://tandem.example")
STRANGE = (b"origin", b"http://elsewhere.example")


async def opened(path: str, *headers: tuple[bytes, bytes], role: str = "all") -> int | None:
    """Return the code with which it is closed again for want of a key; None: it is refused."""
    services = cast("Services", AsyncMock())
    application = sockets(services, TransportOptions(redis_url="redis://127.0.0.1:1"), role)
    host = (b"host", b"tandem.example")
    socket = WebsocketCommunicator(application, path, headers=[host, *headers])
    is_open, _ = await socket.connect(timeout=PATIENCE_S)
    if not is_open:
        return None
    closed = await socket.receive_output(timeout=PATIENCE_S)
    await socket.disconnect(timeout=PATIENCE_S)
    return cast("int", closed["code"])


@pytest.mark.parametrize(
    ("role", "paths"),
    [
        ("all", {BATCH, ADMIN_BATCH, LIVE_PATH}),
        ("api", {BATCH}),
        ("admin", {ADMIN_BATCH, LIVE_PATH}),
    ],
)
async def test_a_role_has_its_own_and_no_others(role: str, paths: set[str]) -> None:
    everywhere = [BATCH, ADMIN_BATCH, LIVE_PATH, "/", "/ws/", f"{LIVE_PATH}/", f"/{LIVE_PATH}"]
    assert {path for path in everywhere if await opened(path, OWN, role=role)} == paths


async def test_other_sites_pages_open_none() -> None:
    for path in (BATCH, ADMIN_BATCH, LIVE_PATH):
        assert await opened(path, STRANGE) is None


async def test_a_program_watches_batches_and_no_dashboard() -> None:
    assert await opened(BATCH) == DENIED
    assert await opened(LIVE_PATH) is None


async def test_a_session_that_cannot_be_is_none() -> None:
    """Within quotes a cookie may hold a null character, which the database fails on."""
    cookie = (b"cookie", rb'sessionid="\000aaaaaaaaaaaaaaaa"')
    assert await opened(LIVE_PATH, OWN, cookie) == consumer.DENIED == DENIED
