"""Valkey and PostgreSQL go away and come back while Tandem runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.client import (
    ENDLESS,
    WHOLE_STREAM,
    Client,
    RawRequest,
    body,
    names_of,
    script,
    text_of,
)
from tests.acceptance.stack import Gateway, Stack, eventually

pytestmark = pytest.mark.acceptance

MODEL = "scripted"
NUMBERS = " ".join(str(number) for number in range(80))


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Return a stack of this module's own, since its servers are killed."""
    with (
        tempfile.TemporaryDirectory(prefix="tandem-restarts-") as folder,
        Stack(Path(folder)) as running,
    ):
        running.add_model(MODEL)
        running.start_worker(MODEL)
        yield running


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    started = stack.start_gateway()
    started.wait_for_model(MODEL)
    return started


def serves(client: Client) -> bool:
    """Whether the next request gets a whole answer."""
    with client.stream(MODEL, script(tokens=3)) as stream:
        return names_of(stream.rest()) == WHOLE_STREAM


def test_a_valkey_that_restarts_while_idle_is_not_noticed(stack: Stack, client: Client) -> None:
    assert serves(client)
    stack.restart_valkey()
    assert serves(client)


def test_a_valkey_that_was_away_for_long_is_not_noticed(stack: Stack, client: Client) -> None:
    assert serves(client)
    stack.valkey.kill()
    stack.valkey = stack.start_valkey()
    # As after a longer absence: every heartbeat has expired.
    for report in stack.reports():
        stack.redis.delete(stack.keys.engine(report.engine_id))
    for key in stack.redis.scan_iter(stack.keys.gateway("*")):
        stack.redis.delete(key)
    assert serves(client)


def test_a_stream_goes_on_over_a_restart_of_valkey(stack: Stack, client: Client) -> None:
    with client.stream(MODEL, script(text=NUMBERS, token_delay_s=0.05)) as stream:
        start = stream.wait_for("content_block_start")
        stack.restart_valkey()
        frames = [start, *stream.rest()]
    assert names_of(frames) == WHOLE_STREAM[1:]
    assert text_of(frames) == NUMBERS


def test_a_client_that_leaves_while_valkey_is_away_still_stops_the_engine(
    stack: Stack, gateway: Gateway, client: Client
) -> None:
    with RawRequest(gateway.port, stack.key, body(MODEL, ENDLESS, stream=True)) as request:
        stack.wait_for_in_flight(MODEL, 1)
        stack.valkey.kill()
        request.leave()
    eventually(lambda: gateway.in_flight() == 0, "the gateway sees that the client has left")
    eventually(lambda: not gateway.readiness()["redis"], "the gateway sees that Valkey is away")
    stack.valkey = stack.start_valkey()
    assert serves(client)
    stack.wait_for_in_flight(MODEL, 0)


def test_a_request_that_comes_while_valkey_is_away_waits_for_it(
    stack: Stack, gateway: Gateway
) -> None:
    stack.valkey.kill()
    with RawRequest(gateway.port, stack.key, body(MODEL, script(text="patience"))) as request:
        eventually(lambda: gateway.in_flight() == 1, "the gateway has the request")
        stack.valkey = stack.start_valkey()
        assert b'"patience"' in request.rest()


def test_a_valkey_that_comes_back_empty_while_idle_is_not_noticed(
    stack: Stack, client: Client
) -> None:
    assert serves(client)
    stack.restart_valkey(keep_data=False)
    assert serves(client)


def test_a_stream_that_lost_its_frames_ends_with_an_error(stack: Stack, client: Client) -> None:
    with client.stream(MODEL, ENDLESS) as stream:
        stream.wait_for("content_block_delta")
        stack.restart_valkey(keep_data=False)
        last = stream.rest()[-1]
    assert last.name == "error"
    assert last.data["error"]["type"] == "api_error"
    assert serves(client)
    stack.wait_for_in_flight(MODEL, 0)


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_lost_its_frames_before_any_text_is_run_again(
    stack: Stack, gateway: Gateway, stream: bool
) -> None:
    asked = body(MODEL, script(first_token_delay_s=4, text="again"), stream=stream)
    with RawRequest(gateway.port, stack.key, asked) as request:
        stack.wait_for_in_flight(MODEL, 1)
        stack.restart_valkey(keep_data=False)
        answer = request.rest()
    assert answer.count(b'"again"') == 1
    assert answer.count(b"event: message_start") == stream
    stack.wait_for_in_flight(MODEL, 0)


def test_a_postgresql_that_restarts_is_not_noticed(stack: Stack, client: Client) -> None:
    assert serves(client)
    stack.restart_postgres()
    assert serves(client)


def test_a_key_is_found_again_once_postgresql_is_back(
    stack: Stack, gateway: Gateway, client: Client
) -> None:
    stack.postgres.stop()
    client.http.headers["x-api-key"] = "sk-tandem-unknown"
    assert client.ask(MODEL, "go").status_code == 401
    stack.postgres = stack.start_postgres()
    client.http.headers["x-api-key"] = stack.mint("late")
    assert serves(client)
