"""The system checks."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import Group, User
from django.core.checks import CheckMessage, run_checks
from django.db import ProgrammingError
from pytest_django import Settings

from gateway import checks
from gateway.config import Config
from gateway.models import Team
from inference.models import Model


def found(databases: list[str] | None = None) -> dict[str, CheckMessage]:
    """Run all checks as `manage.py check` does, and return Tandem's own by id."""
    messages = run_checks(databases=databases)
    return {
        str(message.id): message for message in messages if str(message.id).startswith("gateway.")
    }


@pytest.fixture
def config(settings: Settings, tmp_path: Path) -> Config:
    """Return the settings in use, in a data directory of the test's own."""
    config = Config(DATA_DIR=tmp_path)
    settings.TANDEM = config
    return config


# Reached from everywhere, and nothing to warn of.
SAFE = {
    "HOST": "0.0.0.0",
    "ALLOWED_HOSTS": ["tandem.example.org"],
    "HTTPS": True,
    "ADMIN_TWO_FACTOR": True,
}


def use(settings: Settings, config: Config, **changes: object) -> None:
    settings.TANDEM = config.model_copy(update=changes)


def add_model(name: str, **fields: object) -> None:
    Model.objects.create(**{"id": name, "context_tokens": 1, "backend": "scripted", **fields})


def test_the_defaults_are_clean(config: Config) -> None:
    assert found() == {}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_alone_may_debug_and_be_called_anything(
    host: str, settings: Settings, config: Config
) -> None:
    use(settings, config, HOST=host, DEBUG=True, ALLOWED_HOSTS=["*"])
    assert found() == {}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "tandem.example.org"])
def test_w001_warns_of_debug_on_an_open_address(
    host: str, settings: Settings, config: Config
) -> None:
    use(
        settings,
        config,
        **(SAFE | {"HOST": host, "DEBUG": True, "ALLOWED_HOSTS": ["tandem.example.org"]}),
    )
    assert found().keys() == {"gateway.W001"}
    assert host in found()["gateway.W001"].msg


def test_w003_warns_of_any_host_name_on_an_open_address(settings: Settings, config: Config) -> None:
    use(settings, config, **(SAFE | {"ALLOWED_HOSTS": ["*"]}))
    assert found().keys() == {"gateway.W003"}


def test_w008_warns_of_what_goes_in_the_clear(settings: Settings, config: Config) -> None:
    use(settings, config, **SAFE)
    assert found() == {}
    use(settings, config, **(SAFE | {"HTTPS": False}))
    assert found().keys() == {"gateway.W008"}
    use(settings, config, **(SAFE | {"HTTPS": False, "HOST": "127.0.0.1"}))
    assert found() == {}


def test_w009_warns_of_an_admin_behind_a_password_alone(settings: Settings, config: Config) -> None:
    use(settings, config, **(SAFE | {"ADMIN_TWO_FACTOR": False}))
    assert found().keys() == {"gateway.W009"}
    use(settings, config, **(SAFE | {"ADMIN_TWO_FACTOR": False, "GATEWAY_ROLE": "api"}))
    assert found() == {}


@pytest.mark.django_db
def test_w010_warns_of_operators_who_see_nothing(config: Config) -> None:
    User.objects.create_superuser("root")
    User.objects.create_user("guest")
    User.objects.create_user("viewer", is_staff=True).groups.add(Group.objects.get(name="viewer"))
    assert found(["default"]) == {}
    User.objects.create_user("ann", is_staff=True)
    assert found(["default"])["gateway.W010"].msg.startswith("ann can sign in")


def test_e002_refuses_a_short_secret_key(settings: Settings, config: Config) -> None:
    settings.SECRET_KEY = "x" * 31
    assert found()["gateway.E002"].is_serious()
    settings.SECRET_KEY = "x" * 32
    assert found() == {}


@pytest.mark.django_db
def test_w004_warns_of_names_that_two_models_claim(config: Config) -> None:
    add_model("one", aliases=["fast"])
    add_model("two", aliases=["FAST"])
    add_model("off", aliases=["fast"], enabled=False)
    assert found(["default"])["gateway.W004"].msg == "Several models are called 'fast': one, two."


@pytest.mark.django_db
def test_w005_warns_of_weights_that_are_not_there(config: Config, tmp_path: Path) -> None:
    (tmp_path / "models" / "here").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    add_model("relative", backend="vllm", weights="here")
    add_model("absolute", backend="vllm", weights=str(tmp_path / "elsewhere"))
    add_model("disabled", backend="vllm", weights="gone", enabled=False)
    add_model("scripted")
    assert found(["default"]) == {}
    add_model("missing", backend="vllm", weights="gone")
    message = found(["default"])["gateway.W005"]
    assert str(tmp_path / "models" / "gone") in message.msg
    assert "fetch_model" in str(message.hint)


@pytest.mark.django_db
def test_w005_warns_of_a_vllm_model_without_weights(config: Config) -> None:
    add_model("missing", backend="vllm")
    assert "gateway.W005" in found(["default"])


@pytest.mark.django_db
def test_w006_warns_of_an_engine_for_a_model_that_is_not_enabled(
    settings: Settings, config: Config
) -> None:
    add_model("one")
    add_model("off", enabled=False)
    use(settings, config, ENGINE_MODELS=["one", "off"])
    message = found(["default"])["gateway.W006"]
    assert "'off'" in message.msg
    assert message.hint == "Enabled models: one."


@pytest.mark.django_db
def test_w007_warns_of_prompts_that_are_kept_of_who_keeps_none(config: Config) -> None:
    add_model("kept", kv_offload_gib=1, kv_offload_dir="/srv/kv")
    Team.objects.create(name="open")
    assert "gateway.W007" not in found(["default"])
    Team.objects.create(name="silent", zero_data_retention=True)
    assert "Prompts of silent" in found(["default"])["gateway.W007"].msg
    Model.objects.update(kv_offload_dir="")
    assert "gateway.W007" not in found(["default"])


@pytest.mark.django_db
def test_the_database_s_content_never_stops_a_migration(settings: Settings, config: Config) -> None:
    add_model("one", aliases=["two"], backend="vllm")
    add_model("two")
    use(settings, config, ENGINE_MODELS=["three"])
    messages = found(["default"])
    assert messages.keys() == {"gateway.W004", "gateway.W005", "gateway.W006"}
    assert not any(message.is_serious() for message in messages.values())


def test_the_database_is_left_alone_unless_asked_for(config: Config) -> None:
    assert found() == {}  # a query would fail: this test has no access to the database


def test_a_database_without_tables_has_nothing_to_check(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**conditions: object) -> None:
        raise ProgrammingError("relation does not exist")

    monkeypatch.setattr(Model.objects, "filter", fail)
    assert checks.check_catalogue(None, databases=["default"]) == []
