"""A client that takes nothing: its connection is dropped before its output fills the memory."""

from __future__ import annotations

import pytest

from tests.acceptance.client import WHOLE_STREAM, Client, RawRequest, body, names_of, script
from tests.acceptance.conftest import MakeClient
from tests.acceptance.stack import Gateway, Stack

pytestmark = pytest.mark.acceptance

BUFFER_BYTES = 1_000_000
# Far more output than all the sockets' buffers on the way can hold, for minutes.
FLOOD = script(text="x" * 100_000, tokens=10_000, token_delay_s=0.02)


@pytest.fixture(scope="module")
def strict(stack: Stack, model: str) -> Gateway:
    """Return a gateway that keeps little for a slow client."""
    gateway = stack.start_gateway(STREAM_BUFFER_BYTES=str(BUFFER_BYTES))
    gateway.wait_for_model(model)
    return gateway


@pytest.fixture
def client(make_client: MakeClient, strict: Gateway) -> Client:
    """Return a client of that gateway."""
    return make_client(strict)


def test_a_client_that_reads_nothing_is_dropped(
    stack: Stack, strict: Gateway, client: Client, model: str
) -> None:
    asked = body(model, FLOOD, stream=True)
    with RawRequest(strict.port, stack.key, asked, buffer=4096) as request:
        stack.wait_for_in_flight(model, 1)
        stack.wait_for_in_flight(model, 0)
        with pytest.raises(ConnectionResetError):
            request.rest()
    with client.stream(model, script(tokens=3)) as stream:
        assert names_of(stream.rest()) == WHOLE_STREAM


def test_a_client_that_keeps_up_gets_more_than_the_buffer_holds(client: Client, model: str) -> None:
    size, tokens = 20_000, 150
    assert size * tokens > 2 * BUFFER_BYTES
    content = script(text="x" * size, tokens=tokens, token_delay_s=0.02)
    with client.stream(model, content) as stream:
        assert names_of(stream.rest()) == WHOLE_STREAM
