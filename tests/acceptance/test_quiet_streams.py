"""Streams on which nothing happens for a while are kept alive."""

from __future__ import annotations

import pytest

from tests.acceptance.client import (
    ENDLESS,
    WHOLE_STREAM,
    Client,
    names_of,
    script,
    text_of,
)
from tests.acceptance.conftest import MakeClient
from tests.acceptance.stack import Gateway, Stack, ending

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    """Return a gateway that pings after a moment."""
    return stack.start_gateway(PING_INTERVAL_S="0.3")


def test_a_stream_that_is_quiet_is_pinged(client: Client, gateway: Gateway, model: str) -> None:
    gateway.wait_for_model(model)
    with client.stream(model, script(text="a b", first_token_delay_s=2)) as stream:
        frames = stream.rest()
    start, ping, *rest = WHOLE_STREAM[:1] + ["ping"] + WHOLE_STREAM[1:]
    assert names_of(frames) == [start, ping, *rest]
    assert text_of(frames) == "a b"


def test_a_stream_is_pinged_between_tokens(client: Client, gateway: Gateway, model: str) -> None:
    gateway.wait_for_model(model)
    with client.stream(model, script(text="a b", token_delay_s=2)) as stream:
        stream.wait_for("content_block_delta")
        names = names_of(stream.rest())
    assert names == ["ping", *WHOLE_STREAM[2:]]


def test_before_the_first_event_a_comment_takes_the_place_of_a_ping(
    stack: Stack, gateway: Gateway, client: Client, make_client: MakeClient
) -> None:
    model = stack.add_model("quiet-in-queue", capacity=1)
    with ending(stack.start_worker(model)):
        gateway.wait_for_model(model)
        with client.stream(model, ENDLESS) as running:
            running.wait_for("content_block_delta")
            with make_client(gateway).stream(model, script(text="a b")) as waiting:
                waiting.wait_for(":")
                running.response.close()
                frames = [frame for frame in waiting if frame.name != ":"]
    assert names_of(frames) == WHOLE_STREAM
