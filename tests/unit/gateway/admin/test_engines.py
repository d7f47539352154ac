"""The page of engines, and what operators tell them there."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.contrib.admin.models import LogEntry
from django.test import Client
from pytest_django import Settings

from inference.models import Model
from inference.transport.connection import connect_sync
from inference.transport.frames import EngineReport, EngineState, encode
from inference.transport.keys import Keys
from tests.unit.gateway.admin.operators import sign_in

pytestmark = pytest.mark.django_db

ENGINES = "/admin/engines/"


@pytest.fixture
def keys(settings: Settings) -> Keys:
    prefix = f"engines-{secrets.token_hex(4)}"
    settings.TANDEM = settings.TANDEM.model_copy(update={"REDIS_PREFIX": prefix})
    return Keys(prefix)


@pytest.fixture
def server() -> Iterator[redis.Redis]:
    with connect_sync(django_settings.REDIS_URL) as client:
        yield client


class Engines:
    """Heartbeats, and what their engines are told."""

    def __init__(self, server: redis.Redis, keys: Keys) -> None:
        self._server, self._keys = server, keys

    def live(self, **fields: Any) -> str:
        said: dict[str, Any] = {
            "engine_id": str(uuid.uuid4()),
            "model": "tiny",
            "host": "box-1",
            "pid": 4711,
            "state": EngineState.READY,
            "capacity": 32,
            "in_flight": 3,
            "work_in_flight": 4,
            "kv_use": None,
            "started_at_s": time.time() - 3_600,
        } | fields
        report = EngineReport(**said)
        self._server.sadd(self._keys.engines, report.engine_id)
        self._server.set(self._keys.engine(report.engine_id), encode(report))
        return report.engine_id

    def told(self, engine_id: str) -> list[bytes]:
        entries: Any = self._server.xrange(self._keys.control(engine_id))
        return [fields[b"o"] for _, fields in entries]


@pytest.fixture
def engines(server: redis.Redis, keys: Keys) -> Engines:
    return Engines(server, keys)


def page_of(client: Client, address: str = ENGINES) -> str:
    return unescape(client.get(address).content.decode())


def test_it_lists_the_engines_that_are_alive_and_the_models_without_one(
    admin_client: Client, engines: Engines
) -> None:
    for name in ("tiny", "vendor/large", "off"):
        Model.objects.create(id=name, context_tokens=1, enabled=name != "off")
    engine_id = engines.live()
    page = page_of(admin_client)
    for text in (engine_id, "box-1", "4711", ">7<", ">32<", "1:00:0"):
        assert text in page
    assert '<h2 id="unserved">Models that no engine serves</h2>' in page
    assert "/admin/inference/model/vendor_2Flarge/change/" in page
    assert "no engine serves vendor/large" in page
    assert "no engine serves tiny" not in page
    assert "ENGINE_MODELS=vendor/large .venv/bin/python -m celery" in page
    assert ">off<" not in page


def test_an_engine_that_is_not_ready_serves_nobody(admin_client: Client, engines: Engines) -> None:
    Model.objects.create(id="tiny", context_tokens=1)
    engines.live(state=EngineState.FAILED, reason="out of memory")
    page = page_of(admin_client)
    assert "the engine of tiny does not serve: out of memory" in page


def test_where_all_are_served_no_command_is_told(admin_client: Client, engines: Engines) -> None:
    Model.objects.create(id="tiny", context_tokens=1)
    engines.live()
    page = page_of(admin_client)
    assert "Models that no engine serves" not in page
    assert "manage.py serve" not in page


def test_without_an_engine_it_says_so(admin_client: Client, engines: Engines) -> None:
    assert "No engine is alive." in page_of(admin_client)


@pytest.mark.parametrize(
    ("state", "offered"),
    [
        (EngineState.LOADING, set()),
        (EngineState.READY, {"drain", "reload"}),
        (EngineState.DRAINING, {"resume", "reload"}),
        (EngineState.FAILED, set()),
    ],
)
def test_it_offers_what_an_engine_can_do_now(
    admin_client: Client, engines: Engines, state: EngineState, offered: set[str]
) -> None:
    engine_id = engines.live(state=state, reason="out of memory")
    page = page_of(admin_client)
    orders = {"drain", "resume", "reload"}
    assert {order for order in orders if f"{ENGINES}{engine_id}/{order}/" in page} == offered
    assert "out of memory" in page


def test_what_a_failed_engine_says_is_never_html(admin_client: Client, engines: Engines) -> None:
    engines.live(state=EngineState.FAILED, reason="<script>alert(1)</script>")
    assert "<script>alert(1)" not in admin_client.get(ENGINES).content.decode()


@pytest.mark.parametrize("order", ["drain", "resume", "reload"])
def test_an_order_is_asked_about_and_then_given_and_kept(
    admin_client: Client, engines: Engines, order: str
) -> None:
    engine_id, other = engines.live(), engines.live()
    address = f"{ENGINES}{engine_id}/{order}/"
    assert engine_id in page_of(admin_client, address)
    assert engines.told(engine_id) == []

    answer = admin_client.post(address, follow=True)
    assert "tiny on box-1" in answer.content.decode()
    assert engines.told(engine_id) == [order.encode()]
    assert engines.told(other) == []
    change = LogEntry.objects.get()
    assert (change.object_id, change.get_change_message()) == (
        engine_id,
        f"{order.capitalize()}.",
    )


def test_the_last_engine_of_a_model_is_said_to_be_that(
    admin_client: Client, engines: Engines
) -> None:
    last, other = engines.live(), engines.live(state=EngineState.LOADING)
    warning = "No other engine of this model is ready"
    assert warning in page_of(admin_client, f"{ENGINES}{last}/drain/")
    assert warning not in page_of(admin_client, f"{ENGINES}{last}/resume/")
    engines.live()
    assert warning not in page_of(admin_client, f"{ENGINES}{last}/drain/")
    assert other


def test_an_engine_that_is_gone_is_told_nothing(admin_client: Client, engines: Engines) -> None:
    gone = str(uuid.uuid4())
    for method in (admin_client.get, admin_client.post):
        page = method(f"{ENGINES}{gone}/drain/", follow=True).content.decode()
        assert "This engine is gone." in page
    assert engines.told(gone) == []


def test_there_are_no_other_orders(admin_client: Client, engines: Engines) -> None:
    engine_id = engines.live()
    assert admin_client.post(f"{ENGINES}{engine_id}/dance/").status_code == 404
    assert admin_client.put(f"{ENGINES}{engine_id}/drain/").status_code == 405


def test_seeing_takes_one_permission_and_giving_orders_another(
    client: Client, engines: Engines
) -> None:
    engine_id = engines.live()
    order = f"{ENGINES}{engine_id}/drain/"
    sign_in(client, name="nobody")
    assert client.get(ENGINES).status_code == client.post(order).status_code == 403
    sign_in(client, "viewer", name="viewer")
    assert order not in client.get(ENGINES).content.decode()
    assert client.post(order).status_code == 403
    assert engines.told(engine_id) == []
    sign_in(client, "operator", name="operator")
    assert order in client.get(ENGINES).content.decode()
    assert client.post(order).status_code == 302
    assert engines.told(engine_id) == [b"drain"]


def test_without_redis_it_says_so(admin_client: Client, settings: Settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    page = page_of(admin_client)
    assert "no engine can be seen" in page
    assert "No engine is alive." not in page
    order = f"{ENGINES}{uuid.uuid4()}/drain/"
    assert "Redis cannot be reached" in admin_client.post(order, follow=True).content.decode()
