"""A client that takes nothing: its connection is dropped before its output fills the memory."""

from __future__ import annotations

import pytest

from tests.acceptance.client import WHOLE_STREAM, RawRequest, body, names_of, script
from tests.acceptance.conftest import MakeClient
from tests.acceptance.stack import Stack

pytestmark = pytest.mark.acceptance

# Far more output than all the sockets' buffers on the way can hold, for minutes.
FLOOD = script(text="x" * 20_000, tokens=10_000, token_delay_s=0.02)


def test_a_client_that_reads_nothing_is_dropped(
    stack: Stack, make_client: MakeClient, model: str
) -> None:
    gateway = stack.start_gateway(STREAM_BUFFER_BYTES="65536")
    gateway.wait_for_model(model)
    asked = body(model, FLOOD, stream=True)
    with RawRequest(gateway.port, stack.key, asked, buffer=4096) as request:
        stack.wait_for_in_flight(model, 1)
        stack.wait_for_in_flight(model, 0)
        with pytest.raises(ConnectionResetError):
            request.rest()
    with make_client(gateway).stream(model, script(tokens=3)) as stream:
        assert names_of(stream.rest()) == WHOLE_STREAM


def test_a_client_that_keeps_up_gets_everything(
    stack: Stack, make_client: MakeClient, model: str
) -> None:
    gateway = stack.start_gateway(STREAM_BUFFER_BYTES="65536")
    gateway.wait_for_model(model)
    with make_client(gateway).stream(model, script(text="x" * 20_000, tokens=300)) as stream:
        assert names_of(stream.rest()) == WHOLE_STREAM
