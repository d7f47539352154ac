"""Reading `/readyz`."""

from __future__ import annotations

import socket

from gateway.supervise.readiness import Readiness, ask, read


def test_200_is_ready() -> None:
    body = {"status": "ready", "models": {"m": {"state": "ready", "reason": ""}}}
    assert read(200, body) == Readiness(is_ready=True, models={"m": "ready"}, failures={})


def test_a_failed_engine_comes_with_its_reason() -> None:
    body = {
        "models": {
            "m": {"state": "failed", "reason": "the canary answered 'Rome'"},
            "n": {"state": "loading", "reason": ""},
        }
    }
    readiness = read(503, body)
    assert not readiness.is_ready
    assert readiness.failures == {"m": "the canary answered 'Rome'"}
    assert readiness.models == {"m": "failed", "n": "loading"}


def test_a_gateway_that_does_not_listen_gives_no_answer() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        assert ask("127.0.0.1", probe.getsockname()[1]) is None


def test_a_gateway_that_listens_and_is_not_up_gives_no_answer() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        assert ask("127.0.0.1", listener.getsockname()[1], timeout_s=0.05) is None
