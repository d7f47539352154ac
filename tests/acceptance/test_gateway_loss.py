"""A gateway that dies: nobody listens to its requests any more."""

from __future__ import annotations

import contextlib

import httpx
import pytest

from tests.acceptance.client import ENDLESS, Client
from tests.acceptance.conftest import MakeClient
from tests.acceptance.stack import Stack

pytestmark = pytest.mark.acceptance


def test_the_requests_of_a_killed_gateway_are_dropped(
    stack: Stack, client: Client, make_client: MakeClient
) -> None:
    model = stack.add_model("gateway-killed", capacity=1)
    stack.start_worker(model)
    doomed = stack.start_gateway()
    doomed.wait_for_model(model)
    with (
        contextlib.suppress(httpx.TransportError),
        make_client(doomed).stream(model, ENDLESS) as stream,
    ):
        stream.wait_for("content_block_delta")
        stack.wait_for_in_flight(model, 1)
        doomed.server.kill()
        stream.rest()
    stack.wait_for_in_flight(model, 0)
    assert client.ask(model, "go").status_code == 200
