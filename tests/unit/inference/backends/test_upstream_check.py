"""Tests of upstreams, beside a real server that answers, fails or is not there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from inference.backends import upstream_check
from inference.backends.upstream_check import check_model, check_upstream
from inference.catalogue import ModelEntry
from inference.connections import Finding
from inference.errors import TandemError
from inference.upstreams import UpstreamEntry
from tests.contracts.requests import make_entry
from tests.upstream_server import Reply, UpstreamServer, error_reply

KEY = "sk-planted-secret"
PATHS = {"openai": "/v1", "anthropic": ""}


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[UpstreamServer]:
    monkeypatch.setenv("THEIR_API_KEY", KEY)
    async with UpstreamServer(make_entry()) as running:
        yield running


@pytest.fixture(params=PATHS)
def backend(request: pytest.FixtureRequest) -> str:
    """Return each dialect in turn."""
    return str(request.param)


def upstream(server: UpstreamServer, backend: str = "openai", **fields: Any) -> UpstreamEntry:
    return server.upstream(PATHS[backend], **({"key": "${env:THEIR_API_KEY}"} | fields))


def model(backend: str, told: UpstreamEntry, **fields: Any) -> ModelEntry:
    return make_entry(**({"id": "far", "backend": backend, "upstream": told} | fields))


async def check(server: UpstreamServer, backend: str, **fields: Any) -> Finding:
    told = upstream(server, backend, **fields)
    (finding,) = await check_upstream(told, [model(backend, told)])
    return finding


async def test_a_model_that_answers(server: UpstreamServer, backend: str) -> None:
    ok, text = await check(server, backend)

    assert ok
    assert text.startswith("far: it begins to answer after ")
    assert len(server.received) == 1


async def test_an_account_that_is_refused_is_told_in_the_upstreams_words(
    server: UpstreamServer, backend: str
) -> None:
    said = {"message": f"Incorrect API key provided: {KEY}.", "type": "authentication_error"}
    server.replies.append(error_reply(401, said))

    ok, text = await check(server, backend)

    assert not ok
    assert "401" in text
    assert "Incorrect API key provided: [secret]." in text


async def test_a_model_that_is_not_known_there(server: UpstreamServer, backend: str) -> None:
    said = {"message": "The model `far` does not exist.", "type": "not_found_error"}
    server.replies.append(error_reply(404, said))

    ok, text = await check(server, backend)

    assert not ok
    assert "404" in text
    assert "The model `far` does not exist." in text


async def test_nobody_is_there(server: UpstreamServer, backend: str) -> None:
    # The discard port: nobody listens there.
    found = await check(server, backend, base_url="http://127.0.0.1:9")

    assert found == (
        False,
        "far: the upstream cannot be reached: it refuses the connection",
    )


async def test_an_upstream_that_does_not_answer_is_given_up(
    server: UpstreamServer, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_check, "PATIENCE_S", 0.2)
    server.replies.append(Reply(hangs=True))

    assert await check(server, backend) == (
        False,
        "far: the upstream does not answer within 0.2 s",
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"key": "${env:SURELY_NOT_SET}"},
            "Its key cannot be read: the environment has no SURELY_NOT_SET.",
        ),
        (
            {"base_url": "ftp://there"},
            "Its address must begin with https:// or http:// and a host.",
        ),
    ],
)
async def test_an_entry_that_is_wrong_is_told_once(
    server: UpstreamServer, fields: dict[str, Any], text: str
) -> None:
    told = upstream(server, **fields)
    models = [model("openai", told), model("openai", told, id="farther")]

    assert await check_upstream(told, models) == [(False, text)]
    assert server.received == []


async def test_each_of_its_models_is_asked(server: UpstreamServer) -> None:
    told = upstream(server)
    wrong = model("openai", told, id="wrong", upstream_options={"sytem": 1})
    first, second = await check_upstream(told, [model("openai", told), wrong])

    assert first.ok
    assert not second.ok
    assert "unknown field `sytem`" in second.text


async def test_one_without_models_is_reached_and_not_given_the_key(server: UpstreamServer) -> None:
    (finding,) = await check_upstream(upstream(server), [])

    assert finding.ok
    assert "can be reached" in finding.text
    (received,) = server.received
    assert KEY not in str(received)


async def test_one_without_models_may_not_be_there(server: UpstreamServer) -> None:
    gone = upstream(server, base_url="http://127.0.0.1:9")

    assert await check_upstream(gone, []) == [
        (False, "The upstream cannot be reached: it refuses the connection.")
    ]


async def test_a_model_may_be_asked_alone(server: UpstreamServer, backend: str) -> None:
    assert await check_model(model(backend, upstream(server, backend))) > 0
    server.replies.append(error_reply(500, {"message": "No."}))
    with pytest.raises(TandemError, match=r"500: No\."):
        await check_model(model(backend, upstream(server, backend)))
