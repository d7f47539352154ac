"""A client that leaves: its request stops at once, wherever it is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.client import (
    ENDLESS,
    WHOLE_STREAM,
    Client,
    RawRequest,
    body,
    names_of,
    script,
)
from tests.acceptance.stack import Gateway, Stack, ending

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]


def test_leaving_a_stream_stops_the_engine(stack: Stack, client: Client, model: str) -> None:
    with client.stream(model, ENDLESS) as stream:
        stream.wait_for("content_block_delta")
        stack.wait_for_in_flight(model, 1)
    stack.wait_for_in_flight(model, 0)


def test_leaving_before_the_whole_answer_stops_the_engine(
    stack: Stack, gateway: Gateway, model: str
) -> None:
    with RawRequest(gateway.port, stack.key, body(model, ENDLESS)) as request:
        stack.wait_for_in_flight(model, 1)
        request.leave()
    stack.wait_for_in_flight(model, 0)


def test_a_request_that_is_left_in_the_queue_never_starts(
    stack: Stack, gateway: Gateway, client: Client
) -> None:
    model = stack.add_model("left-in-queue", capacity=1)
    with ending(stack.start_worker(model)):
        gateway.wait_for_model(model)
        with client.stream(model, ENDLESS) as running:
            running.wait_for("content_block_delta")
            for stream in (True, False):
                asked = body(model, ENDLESS, stream=stream)
                with RawRequest(gateway.port, stack.key, asked) as request:
                    stack.wait_for_waiting(model, 1)
                    request.leave()
                # Gone before the one engine has room for it.
                stack.wait_for_waiting(model, 0)
        with client.stream(model, script(tokens=3)) as answer:
            assert names_of(answer.rest()) == WHOLE_STREAM


def test_a_storm_of_disconnects_leaves_the_gateway_well(
    stack: Stack, gateway: Gateway, client: Client, model: str
) -> None:
    def visit(number: int) -> None:
        asked = body(model, ENDLESS, stream=number % 2 == 0)
        with RawRequest(gateway.port, stack.key, asked) as request:
            if number % 4 == 0:
                # With the answer under way; the others leave before it begins.
                request.socket.recv(1)
            request.leave()

    with ThreadPoolExecutor(max_workers=32) as pool:
        list(pool.map(visit, range(1000)))
    with client.stream(model, script(tokens=3)) as stream:
        assert names_of(stream.rest()) == WHOLE_STREAM
    stack.wait_for_waiting(model, 0)
    stack.wait_for_in_flight(model, 0)
