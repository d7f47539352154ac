"""`/ws/batches/{id}`: how a batch gets on, told as it happens to those who may know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import httpx
import openai
import pytest
from openai.types import Batch
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from gateway.models import Scope
from gateway.progress import DENIED, UNKNOWN
from tests.acceptance.client import script
from tests.acceptance.operators import Operator
from tests.acceptance.stack import PATIENCE_S, Gateway, Stack, ending, eventually
from tests.acceptance.teams import make_member
from tests.acceptance.test_openai_batches import ENDS, chat_row, submit

pytestmark = pytest.mark.acceptance

NOBODYS = "batch_0198c5a0-0000-7000-8000-000000000001"
_ROWS = 12
_NORMAL = 1000


@pytest.fixture(scope="module", autouse=True)
def _clerk(stack: Stack) -> Iterator[None]:
    """Have somebody validate batches and end them."""
    with ending(stack.start_clerk()):
        yield


@pytest.fixture(scope="module")
def api(stack: Stack, gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=stack.key) as client:
        yield client


@pytest.fixture(scope="module")
def ended(api: openai.OpenAI, model: str) -> Batch:
    """Return a batch that has ended."""
    batch = submit(api, [chat_row("a", model), chat_row("b", model, temperature="hot")])

    def look() -> Batch | None:
        now = api.batches.retrieve(batch.id)
        return now if now.status in ENDS else None

    found = eventually(look, "the batch ends")
    assert found is not None
    return found


def watch(gateway: Gateway, batch_id: str, **headers: str) -> ClientConnection:
    """Open a socket, with these headers."""
    url = f"ws://127.0.0.1:{gateway.port}/ws/batches/{batch_id}"
    return connect(url, additional_headers=headers, proxy=None)


def told(socket: ClientConnection) -> tuple[list[dict[str, Any]], int]:
    """Read to the end; return what was told, and the closing code."""
    heard: list[dict[str, Any]] = []
    with suppress(ConnectionClosed):
        while True:
            heard.append(json.loads(socket.recv(timeout=PATIENCE_S)))
    assert socket.close_code is not None
    return heard, socket.close_code


def log_in(stack: Stack, gateway: Gateway, *permissions: str) -> str:
    """Make an operator with these permissions, and return the cookies of a session."""
    operator = Operator(stack, gateway, *permissions)
    with closing(operator.http):
        return operator.cookie


def test_changes_are_told_until_the_batch_has_ended(
    stack: Stack, gateway: Gateway, api: openai.OpenAI
) -> None:
    name = stack.add_model("vendor/Watched", capacity=2)
    rows = [chat_row(f"row-{n}", name, script(tokens=10, token_delay_s=0.05)) for n in range(_ROWS)]
    batch = submit(api, rows)
    with watch(gateway, batch.id, authorization=f"Bearer {stack.key}") as socket:
        first = json.loads(socket.recv(timeout=PATIENCE_S))
        assert first["status"] in ("validating", "in_progress")
        assert first["ended_at"] is None
        with ending(stack.start_worker(name)):
            heard, code = told(socket)
    assert code == _NORMAL
    done = [progress["completed"] for progress in heard]
    assert done == sorted(done)
    assert len(set(done)) > 2, "it was told only at the end"
    assert any(progress["time_left_s"] for progress in heard)
    last = heard[-1]
    assert (last["status"], last["total"], last["completed"]) == ("completed", _ROWS, _ROWS)
    assert last["output_tokens"] == 10 * _ROWS
    assert last["ended_at"] is not None
    assert batch.id.endswith(last["id"])


def test_a_batch_that_has_ended_is_told_once(stack: Stack, gateway: Gateway, ended: Batch) -> None:
    with watch(gateway, ended.id, **{"x-api-key": stack.key}) as socket:
        (progress,), code = told(socket)
    assert code == _NORMAL
    assert (progress["completed"], progress["failed"], progress["total"]) == (1, 1, 2)
    assert progress["form"] == "openai"


def test_an_operator_watches_by_a_session(stack: Stack, gateway: Gateway, ended: Batch) -> None:
    cookie = log_in(stack, gateway, "view_batch")
    with watch(gateway, ended.id, cookie=cookie, origin=gateway.url) as socket:
        (progress,), code = told(socket)
    assert (progress["status"], code) == ("completed", _NORMAL)


def test_an_operator_who_may_not_see_batches_does_not(
    stack: Stack, gateway: Gateway, ended: Batch
) -> None:
    cookie = log_in(stack, gateway, "view_model")
    with watch(gateway, ended.id, cookie=cookie, origin=gateway.url) as socket:
        assert told(socket) == ([], DENIED)


def test_another_site_s_page_is_kept_from_an_operator_s_session(
    stack: Stack, gateway: Gateway
) -> None:
    # A program names no origin, and needs its key.
    with watch(gateway, NOBODYS, **{"x-api-key": stack.key}) as socket:
        assert told(socket) == ([], UNKNOWN)
    with watch(gateway, NOBODYS, origin=gateway.url) as socket:
        assert told(socket) == ([], DENIED)
    # The second is another port of the same host: browsers send a session's cookie there, too.
    for elsewhere in ("https://elsewhere.example", "http://127.0.0.1:1"):
        with pytest.raises(InvalidStatus) as raised:
            watch(gateway, NOBODYS, origin=elsewhere)
        assert raised.value.response.status_code == httpx.codes.FORBIDDEN


def test_a_key_sees_its_own_team_s_batches_only(
    stack: Stack, gateway: Gateway, ended: Batch
) -> None:
    stranger = make_member(stack)
    with watch(gateway, ended.id, **{"x-api-key": stranger.key}) as socket:
        assert told(socket) == ([], UNKNOWN)


@pytest.mark.parametrize("batch_id", [NOBODYS, "nonsense"])
def test_an_unknown_batch_is_as_another_team_s(
    stack: Stack, gateway: Gateway, batch_id: str
) -> None:
    with watch(gateway, batch_id, **{"x-api-key": stack.key}) as socket:
        assert told(socket) == ([], UNKNOWN)


def test_without_a_key_for_batches_nothing_is_told(
    stack: Stack, gateway: Gateway, ended: Batch
) -> None:
    for_chat = make_member(stack, key={"scopes": [Scope.INFERENCE]}).key
    for headers in ({}, {"x-api-key": "sk-tandem-wrong"}, {"x-api-key": for_chat}):
        with watch(gateway, ended.id, **headers) as socket:
            assert told(socket) == ([], DENIED)


def test_there_is_no_other_socket(stack: Stack, gateway: Gateway) -> None:
    with pytest.raises(InvalidStatus) as raised:
        connect(f"ws://127.0.0.1:{gateway.port}/ws/other", proxy=None)
    assert raised.value.response.status_code == httpx.codes.FORBIDDEN
