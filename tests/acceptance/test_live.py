"""`/admin/live`: everything at once, then what changes, to operators and nobody else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from gateway.live import consumer
from tests.acceptance.client import Client, script
from tests.acceptance.operators import Operator
from tests.acceptance.stack import PATIENCE_S, Gateway, Stack, ending, eventually
from tests.acceptance.teams import set_price

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module", autouse=True)
def _clerk(stack: Stack) -> Iterator[None]:
    """Have somebody write down what requests come to."""
    with ending(stack.start_clerk()):
        yield


@pytest.fixture(scope="module")
def operator(stack: Stack, gateway: Gateway) -> Iterator[Operator]:
    made = Operator(stack, gateway)
    with closing(made.http):
        yield made


def watch(gateway: Gateway, **headers: str) -> ClientConnection:
    """Open the socket as a page of the gateway does, unless headers say otherwise."""
    named = {"origin": gateway.url} | headers
    url = f"ws://127.0.0.1:{gateway.port}/admin/live"
    return connect(url, additional_headers=named, proxy=None)


class Page:
    """What a page knows from all that it was told so far."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.parts: dict[str, Any] = {}

    def hear(self) -> dict[str, Any]:
        """Take the next message and return it."""
        message: dict[str, Any] = json.loads(self._socket.recv(timeout=PATIENCE_S))
        if message["whole"]:
            self.parts = {}
        self.parts |= message["parts"]
        self.parts = {name: part for name, part in self.parts.items() if part is not None}
        return message

    def hear_until(self, condition: Callable[[dict[str, Any]], object]) -> None:
        """Take messages until what is known fulfils the condition."""
        while not condition(self.parts):
            assert not self.hear()["whole"]

    def engines(self, model: str, state: str) -> list[dict[str, Any]]:
        """The cards of a model's engines in one state."""
        return [
            part
            for name, part in self.parts.items()
            if name.startswith("engine/") and (part["model"], part["state"]) == (model, state)
        ]


def refused(gateway: Gateway, **headers: str) -> int:
    """Return the status with which the socket is refused."""
    with pytest.raises(InvalidStatus) as raised:
        watch(gateway, **headers)
    return raised.value.response.status_code


def closing_code(socket: ClientConnection) -> int | None:
    """Return the code with which a socket is closed before anything is told."""
    with socket, pytest.raises(ConnectionClosed):
        socket.recv(timeout=PATIENCE_S)
    return socket.close_code


def test_everything_is_told_at_once_and_again_after_a_reconnect(
    gateway: Gateway, operator: Operator, model: str
) -> None:
    common = {"alerts", "balances", "deadlines", "rates", "latency", "errors", "batch"}
    common |= {f"usage/{window}" for window in ("today", "yesterday", "week", "month")}
    common |= {f"queue/{lane}" for lane in ("realtime", "flex", "background", "batch")}
    for _ in range(2):
        with watch(gateway, cookie=operator.cookie) as socket:
            page = Page(socket)
            assert page.hear()["whole"]
            # What does not answer within a second is told after the first message.
            page.hear_until(lambda parts: common | {f"model/{model}"} <= parts.keys())
            assert page.engines(model, "ready")


def test_requests_appear_as_they_end_with_what_they_cost(
    stack: Stack, gateway: Gateway, operator: Operator, client: Client
) -> None:
    name = stack.add_model("vendor/Priced")
    set_price(stack, name)
    with ending(stack.start_worker(name)), watch(gateway, cookie=operator.cookie) as socket:
        gateway.wait_for_model(name)
        page = Page(socket)
        page.hear()
        assert client.ask(name, script(tokens=5)).status_code == httpx.codes.OK
        assert client.ask(name, script(tokens=20, fail_at=5)).status_code >= 500

        def is_told(parts: dict[str, Any]) -> bool:
            if not {"usage/week", "errors", "latency"} <= parts.keys():
                return False
            spent = [use for use in parts["usage/week"]["models"] if use["name"] == name]
            failed = [error for error in parts["errors"] if error["model"] == name]
            timed = [each for each in parts["latency"] if each["model"] == name]
            return bool(spent and spent[0]["cost_micros"] and failed and timed)

        page.hear_until(is_told)
        assert page.parts["rates"]["realtime"]["requests_per_s"] > 0


def test_an_engine_that_is_killed_is_missing_and_the_alert_says_what_to_do(
    stack: Stack, gateway: Gateway, operator: Operator
) -> None:
    name = stack.add_model("vendor/Killed")
    with (
        ending(stack.start_worker(name)) as worker,
        watch(gateway, cookie=operator.cookie) as socket,
    ):
        page = Page(socket)
        page.hear()
        page.hear_until(lambda parts: page.engines(name, "ready"))
        worker.kill()
        page.hear_until(lambda parts: page.engines(name, "missing"))

        def told(parts: dict[str, Any]) -> set[str]:
            about = [alert for alert in parts["alerts"] if name in alert["text"]]
            assert all(alert["advice"] for alert in about)
            return {alert["kind"] for alert in about}

        page.hear_until(lambda parts: told(parts) == {"engine_missing", "no_engine"})


def test_what_is_not_an_operator_s_to_see_is_not_told(stack: Stack, gateway: Gateway) -> None:
    viewer = Operator(stack, gateway, "view_model")
    with closing(viewer.http), watch(gateway, cookie=viewer.cookie) as socket:
        page = Page(socket)
        page.hear()
        page.hear_until(lambda parts: {"alerts", "rates", "errors", "queue/batch"} <= parts.keys())
    kinds = {name.partition("/")[0] for name in page.parts}
    assert not kinds & {"batch", "deadlines", "usage", "balances"}


def test_nobody_but_operators_is_let_in(stack: Stack, gateway: Gateway) -> None:
    assert closing_code(watch(gateway)) == consumer.DENIED
    assert closing_code(watch(gateway, **{"x-api-key": stack.key})) == consumer.DENIED


def test_other_pages_are_kept_from_an_operator_s_session(
    gateway: Gateway, operator: Operator
) -> None:
    for origin in ("https://elsewhere.example", "http://127.0.0.1:1", "null"):
        assert refused(gateway, origin=origin, cookie=operator.cookie) == httpx.codes.FORBIDDEN


def test_who_signs_out_is_told_no_more(stack: Stack, gateway: Gateway) -> None:
    operator = Operator(stack, gateway)
    with closing(operator.http), watch(gateway, cookie=operator.cookie) as socket:
        Page(socket).hear()
        operator.post("/admin/logout/", form_at="/admin/password_change/")

        def is_closed() -> bool:
            try:
                socket.recv(timeout=1)
            except TimeoutError:
                return False
            except ConnectionClosed:
                return True
            return False

        eventually(is_closed, "the socket is closed")
        assert socket.close_code == consumer.DENIED


def test_a_page_that_asks_is_told_the_time(gateway: Gateway, operator: Operator) -> None:
    with watch(gateway, cookie=operator.cookie) as socket:
        page = Page(socket)
        page.hear()
        socket.send("?")
        while (message := page.hear())["parts"]:
            pass
        assert not message["whole"]
        assert message["at_s"] > 0


def test_a_process_of_the_admin_alone_tells_the_same_and_one_of_the_api_nothing(
    stack: Stack, gateway: Gateway, operator: Operator, model: str
) -> None:
    admin, api = stack.start_gateway(GATEWAY_ROLE="admin"), stack.start_gateway(GATEWAY_ROLE="api")
    with ending(admin.server), ending(api.server):
        with watch(admin, cookie=operator.cookie) as socket:
            page = Page(socket)
            page.hear()
            page.hear_until(lambda parts: page.engines(model, "ready"))
        assert refused(api, cookie=operator.cookie) == httpx.codes.FORBIDDEN
