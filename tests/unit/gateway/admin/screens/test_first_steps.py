"""What a new install is told to do next."""

from __future__ import annotations

from html import unescape

import pytest
from django.conf import settings as django_settings
from django.test import Client
from pytest_django import Settings

from gateway.admin.screens.first_steps import Step, first_steps
from gateway.keys import mint
from gateway.models import Team
from gateway.session_keys import Purpose, open_session
from inference.models import Model
from inference.transport.connection import connect_sync
from inference.transport.frames import EngineReport, EngineState, encode
from inference.transport.keys import Keys
from tests.unit.gateway.admin.screens.rows import make_record, operator, set_price

pytestmark = pytest.mark.django_db

BASE = "http://tandem.example"


def step(title: str) -> Step:
    (found,) = [step for step in first_steps(BASE) if step.title == title]
    return found


def report(state: EngineState, reason: str = "") -> EngineReport:
    return EngineReport(
        engine_id="e1",
        model="tiny",
        host="gpu-3",
        pid=1,
        state=state,
        capacity=1,
        in_flight=0,
        kv_use=None,
        started_at_s=0,
        reason=reason,
    )


def beat(value: bytes) -> None:
    keys = Keys(django_settings.TANDEM.REDIS_PREFIX)
    with connect_sync(django_settings.REDIS_URL) as redis:
        redis.sadd(keys.engines, "e1")
        redis.set(keys.engine("e1"), value, px=60_000)


@pytest.fixture(autouse=True)
def _forget_engines() -> None:
    keys = Keys(django_settings.TANDEM.REDIS_PREFIX)
    with connect_sync(django_settings.REDIS_URL) as redis:
        redis.delete(keys.engines, keys.engine("e1"))


def test_an_empty_install_is_told_everything(admin_client: Client) -> None:
    page = unescape(admin_client.get("/admin/start/").content.decode())
    assert "Next: <strong>A model in the catalogue</strong>" in page
    for command in ("fetch_model", "serve", "create_api_key laptop", "curl http://testserver/v1/"):
        assert command in page
    assert page.count('aria-current="step"') == 1


def test_steps_tick_themselves_off() -> None:
    assert not any(each.done for each in first_steps(BASE))
    Model.objects.create(id="tiny", context_tokens=1)
    mint("laptop", "blue")
    set_price()
    make_record()
    done = {each.title for each in first_steps(BASE) if each.done}
    assert done == {
        "A model in the catalogue",
        "A team and a key",
        "What it costs",
        "A first request",
    }


def test_the_commands_name_the_model_that_there_is() -> None:
    Model.objects.create(id="vendor/it-s", context_tokens=1)
    assert "check_engine vendor/it-s" in step("An engine that serves it").commands
    assert '"model": "vendor/it-s"' in step("A first request").commands


def test_engines_say_what_they_are_at() -> None:
    Model.objects.create(id="tiny", context_tokens=1)
    title = "An engine that serves it"
    assert "tiny: no engine is running." in step(title).text
    beat(encode(report(EngineState.FAILED, "its canary failed")))
    assert "tiny: 1 failed (its canary failed)." in step(title).text
    assert not step(title).done
    beat(encode(report(EngineState.READY)))
    assert step(title).done
    assert "tiny: 1 ready." in step(title).text


def test_it_is_not_done_while_an_enabled_model_has_no_engine(admin_client: Client) -> None:
    for name in ("off", "tiny", "vendor/archive"):
        Model.objects.create(id=name, context_tokens=1, enabled=name != "off")
    mint("laptop", "blue")
    make_record()
    beat(encode(report(EngineState.READY)))
    missing = step("An engine that serves it")
    assert not missing.done
    assert missing.text.startswith("vendor/archive: no engine is running. tiny: 1 ready.")
    assert "check_engine vendor/archive" in missing.commands
    page = admin_client.get("/admin/start/").content.decode()
    assert "Next: <strong>An engine that serves it</strong>" in page
    Model.objects.filter(pk="vendor/archive").update(enabled=False)
    page = admin_client.get("/admin/start/").content.decode()
    assert "Everything that is needed is there." in page


def test_a_redis_that_is_away_is_said_to_be_so(settings: Settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert "Redis does not answer" in step("An engine that serves it").text


def test_keys_of_the_admin_s_own_pages_do_not_count() -> None:
    open_session(Team.objects.create(name="blue"), Purpose.PLAYGROUND, "ann")
    assert not step("A team and a key").done


def test_every_operator_may_see_it(client: Client) -> None:
    assert operator("view_batch").get("/admin/start/").status_code == 200
    assert client.get("/admin/start/").status_code == 302


def test_the_front_page_has_them_until_there_was_a_request(admin_client: Client) -> None:
    assert "Nobody has sent a request yet." in admin_client.get("/admin/").content.decode()
    make_record()
    assert "Nobody has sent a request yet." not in admin_client.get("/admin/").content.decode()


def test_of_many_models_the_first_are_told() -> None:
    for number in range(12):
        Model.objects.create(id=f"m-{number:02}", context_tokens=1)
    text = step("An engine that serves it").text
    assert "m-09: no engine is running." in text
    assert "m-10" not in text
    assert "And 2 more models." in text
