"""No engine, no room, no time: what cannot be served is refused or ended, and runs no further."""

from __future__ import annotations

from contextlib import ExitStack

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
from tests.acceptance.conftest import MakeClient
from tests.acceptance.stack import Gateway, Stack, ending, eventually

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("stream", [True, False])
def test_without_an_engine_a_request_is_refused(
    stack: Stack, gateway: Gateway, client: Client, stream: bool
) -> None:
    model = stack.add_model(f"no-engine-{stream}")
    gateway.wait_for_model(model, state="missing", engines=0)
    with client.stream(model, "go", stream=stream) as refused:
        assert refused.response.status_code == 503
        refused.response.read()
    assert refused.response.headers["retry-after"]
    error = refused.response.json()["error"]
    assert error["type"] == "api_error"
    assert model in error["message"]
    assert stack.waiting(model) == 0


def test_an_engine_that_comes_later_is_used(stack: Stack, gateway: Gateway, client: Client) -> None:
    model = stack.add_model("comes-later")
    gateway.wait_for_model(model, state="missing", engines=0)
    assert client.ask(model, "go").status_code == 503
    with ending(stack.start_worker(model)):
        eventually(lambda: client.ask(model, "go").status_code == 200, "the new engine is used")


def test_bug_56_a_full_queue_refuses_more_and_runs_nothing_of_it(
    stack: Stack, gateway: Gateway, client: Client
) -> None:
    model = stack.add_model("full", capacity=1, max_waiting=1)
    asked = body(model, script(text="second"))
    with ending(stack.start_worker(model)), ExitStack() as cleanup:
        gateway.wait_for_model(model)
        with client.stream(model, ENDLESS) as running:
            running.wait_for("content_block_delta")
            second = cleanup.enter_context(RawRequest(gateway.port, stack.key, asked))
            stack.wait_for_waiting(model, 1)
            for stream in (True, False):
                with client.stream(model, ENDLESS, stream=stream) as refused:
                    assert refused.response.status_code == 529
                    refused.response.read()
                assert refused.response.json()["error"]["type"] == "overloaded_error"
                assert int(refused.response.headers["retry-after"]) >= 1
        assert b'"second"' in second.rest()
        # Had a refused one been queued, it would hold the only place now.
        assert client.ask(model, "go").status_code == 200


@pytest.fixture(scope="module")
def hasty(stack: Stack, model: str) -> Gateway:
    """Return a gateway that gives every request one second."""
    gateway = stack.start_gateway(REQUEST_TIMEOUT_S="1")
    gateway.wait_for_model(model)
    return gateway


def test_a_whole_answer_that_takes_too_long_is_a_504(
    stack: Stack, hasty: Gateway, make_client: MakeClient, model: str
) -> None:
    response = make_client(hasty).ask(model, ENDLESS)
    assert response.status_code == 504
    assert response.json()["error"]["type"] == "timeout_error"
    assert response.headers["x-should-retry"] == "false"
    stack.wait_for_in_flight(model, 0)


def test_a_stream_that_takes_too_long_ends_with_an_error(
    stack: Stack, hasty: Gateway, make_client: MakeClient, model: str
) -> None:
    with make_client(hasty).stream(model, ENDLESS) as stream:
        frames = stream.rest()
    assert names_of(frames) == [*WHOLE_STREAM[:3], "error"]
    assert frames[-1].data["error"]["type"] == "timeout_error"
    stack.wait_for_in_flight(model, 0)


def test_a_request_that_waits_too_long_never_starts(
    stack: Stack, gateway: Gateway, hasty: Gateway, client: Client, make_client: MakeClient
) -> None:
    model = stack.add_model("waits-too-long", capacity=1)
    with ending(stack.start_worker(model)):
        for each in (gateway, hasty):
            each.wait_for_model(model)
        with client.stream(model, ENDLESS) as running:
            running.wait_for("content_block_delta")
            response = make_client(hasty).ask(model, ENDLESS)
            assert response.status_code == 504
            stack.wait_for_waiting(model, 0)
            assert stack.in_flight(model) == 1
