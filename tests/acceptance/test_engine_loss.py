"""Engines that die, hang, fail or are told to stop, and what callers see of it."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from inference.transport.frames import EngineState
from tests.acceptance.client import (
    ENDLESS,
    WHOLE_STREAM,
    Client,
    names_of,
    script,
    text_of,
)
from tests.acceptance.stack import Gateway, Stack, ending, eventually

pytestmark = pytest.mark.acceptance


def test_an_engine_that_dies_in_mid_stream_ends_the_stream_with_an_error(
    stack: Stack, gateway: Gateway, client: Client
) -> None:
    model = stack.add_model("dies-in-mid-stream")
    worker = stack.start_worker(model)
    gateway.wait_for_model(model)
    with client.stream(model, ENDLESS) as stream:
        stream.wait_for("content_block_delta")
        worker.kill()
        last = stream.rest()[-1]
    assert last.name == "error"
    assert last.data["error"]["type"] == "api_error"
    assert last.data["request_id"] == stream.response.headers["request-id"]


@pytest.mark.parametrize("streamed", [True, False])
def test_another_engine_takes_over_what_one_had_when_it_was_killed(
    stack: Stack, gateway: Gateway, client: Client, streamed: bool
) -> None:
    model = stack.add_model(f"killed-at-first-{streamed}", engine_options={"hang_at": 0})
    doomed = stack.start_worker(model)
    gateway.wait_for_model(model)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(whole_text, client, model, streamed)
        stack.wait_for_in_flight(model, 1)
        stack.script_model(model, text="from the other one")
        with ending(stack.start_worker(model)):
            gateway.wait_for_model(model, engines=2)
            doomed.kill()
            assert answer.result() == "from the other one"


def test_a_request_that_meets_a_dying_engine_is_served_by_another(
    stack: Stack, gateway: Gateway, client: Client
) -> None:
    model = stack.add_model("dies-at-first", engine_options={"die_at": 0})
    doomed = stack.start_worker(model)
    stack.script_model(model, text="from the other one")
    with ending(stack.start_worker(model)):
        gateway.wait_for_model(model, engines=2)
        # Which engine takes a request is chance; in the end one meets the doomed one.
        while doomed.alive:
            assert whole_text(client, model, streamed=True) == "from the other one"


def whole_text(client: Client, model: str, streamed: bool) -> str:
    """Ask, check that the answer is a whole one, and return its text."""
    if streamed:
        with client.stream(model, "go") as stream:
            frames = stream.rest()
        assert names_of(frames) == WHOLE_STREAM
        assert [frame.name for frame in frames].count("message_start") == 1
        return text_of(frames)
    response = client.ask(model, "go")
    assert response.status_code == 200, response.text
    return str(response.json()["content"][0]["text"])


def test_a_request_that_kills_every_engine_ends_with_an_error(
    stack: Stack, gateway: Gateway, client: Client
) -> None:
    model = stack.add_model("killer")
    workers = [stack.start_worker(model) for _ in range(2)]
    gateway.wait_for_model(model, engines=2)
    response = client.ask(model, script(die_at=0))
    assert response.status_code in (500, 503)
    assert response.json()["error"]["type"] == "api_error"
    assert not any(worker.alive for worker in workers)


def test_an_engine_that_hangs_is_given_up(stack: Stack, gateway: Gateway, client: Client) -> None:
    model = stack.add_model("hangs")
    worker = stack.start_worker(model, STALL_AFTER_S="2")
    gateway.wait_for_model(model)
    with client.stream(model, script(hang_at=2)) as stream:
        frames = stream.rest()
    assert frames[-1].name == "error"
    assert worker.wait_for_end() != 0


def test_an_engine_that_fails_one_request_still_serves_the_next(client: Client, model: str) -> None:
    with client.stream(model, script(fail_at=2)) as stream:
        assert stream.rest()[-1].name == "error"
    response = client.ask(model, script(fail_at=0))
    assert response.status_code == 500
    assert response.json()["error"]["message"] != ""
    assert client.ask(model, "go").status_code == 200


def test_an_engine_whose_canary_fails_does_not_serve_and_says_why(
    stack: Stack, gateway: Gateway, client: Client
) -> None:
    model = stack.add_model(
        "canary-fails",
        engine_options={"text": "fluent nonsense"},
        canary_prompt="What is the capital of France?",
        canary_expect="Paris",
    )
    with ending(stack.start_worker(model, until=EngineState.FAILED)):
        gateway.wait_for_model(model, state="failed")
        reason = gateway.model_state(model)["reason"]
        assert "fluent nonsense" in reason
        response = client.ask(model, "go")
    assert response.status_code == 503
    assert reason in response.json()["error"]["message"]


def test_a_worker_that_is_told_to_stop_finishes_what_it_runs(
    stack: Stack, gateway: Gateway, client: Client
) -> None:
    model = stack.add_model("drains")
    worker = stack.start_worker(model)
    gateway.wait_for_model(model)
    with client.stream(model, script(tokens=20, token_delay_s=0.1)) as stream:
        stream.wait_for("content_block_delta")
        worker.process.send_signal(signal.SIGTERM)
        frames = stream.rest()
    assert frames[-1].name == "message_stop"
    assert worker.wait_for_end() == 0


def test_a_worker_that_is_told_to_stop_ends_what_takes_too_long(
    stack: Stack, gateway: Gateway, client: Client
) -> None:
    model = stack.add_model("drains-not")
    worker = stack.start_worker(model)
    gateway.wait_for_model(model)
    with client.stream(model, ENDLESS) as stream:
        stream.wait_for("content_block_delta")
        worker.process.send_signal(signal.SIGTERM)
        assert stream.rest()[-1].name == "error"
    assert worker.wait_for_end() == 0


def test_two_engines_of_a_model_share_its_load(
    stack: Stack, gateway: Gateway, client: Client
) -> None:
    model = stack.add_model("shared", capacity=4)
    with ending(stack.start_worker(model)), ending(stack.start_worker(model)):
        gateway.wait_for_model(model, engines=2)
        with ThreadPoolExecutor(8) as pool:
            answers = [
                pool.submit(client.ask, model, script(tokens=40, token_delay_s=0.1))
                for _ in range(8)
            ]
            eventually(
                lambda: sorted(r.in_flight for r in stack.reports() if r.model == model) == [4, 4],
                "each engine runs half of the requests",
            )
            assert all(answer.result().status_code == 200 for answer in answers)
