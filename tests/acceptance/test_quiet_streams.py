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
def pinging(stack: Stack, model: str) -> Gateway:
    """Return a gateway that pings after a moment."""
    gateway = stack.start_gateway(PING_INTERVAL_S="0.3")
    gateway.wait_for_model(model)
    return gateway


@pytest.fixture
def client(make_client: MakeClient, pinging: Gateway) -> Client:
    """Return a client of the gateway that pings."""
    return make_client(pinging)


@pytest.mark.every_route
def test_bug_53_54_55_and_57_a_quiet_stream_starts_at_once_and_is_pinged(
    client: Client, model: str
) -> None:
    with client.stream(model, script(text="a b", first_token_delay_s=2)) as stream:
        frames = stream.rest()
    assert names_of(frames) == [WHOLE_STREAM[0], "ping", *WHOLE_STREAM[1:]]
    assert text_of(frames) == "a b"


@pytest.mark.every_route
def test_a_stream_is_pinged_between_tokens(client: Client, model: str) -> None:
    # Tokens come on the beat, so the first pause can be short; the second is whole.
    with client.stream(model, script(text="a b c", token_delay_s=2)) as stream:
        stream.wait_for("content_block_delta")
        frames = stream.rest()
    names = [frame.name for frame in frames if frame.name in ("ping", "content_block_delta")]
    assert "ping" in names[names.index("content_block_delta") :]


def test_before_the_first_event_a_comment_takes_the_place_of_a_ping(
    stack: Stack, pinging: Gateway, client: Client
) -> None:
    model = stack.add_model("quiet-in-queue", capacity=1)
    with ending(stack.start_worker(model)):
        pinging.wait_for_model(model)
        with client.stream(model, ENDLESS) as running:
            running.wait_for("content_block_delta")
            with client.stream(model, script(text="a b")) as waiting:
                waiting.wait_for(":")
                running.response.close()
                frames = [frame for frame in waiting if frame.name != ":"]
    assert names_of(frames) == WHOLE_STREAM
