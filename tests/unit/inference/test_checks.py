"""The system checks of upstreams and fallbacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.db import ProgrammingError

from inference import checks
from inference.models import Model, Upstream

pytestmark = pytest.mark.django_db


def found() -> dict[str, CheckMessage]:
    """Run all checks as `manage.py check` does, and return these by id."""
    messages = run_checks(databases=["default"])
    return {
        str(message.id): message for message in messages if str(message.id).startswith("inference.")
    }


def add(
    upstream: dict[str, Any] | None = None, *, has_upstream: bool = True, **fields: Any
) -> None:
    named = {"name": "there", "base_url": "https://there.example"} | (upstream or {})
    there = Upstream.objects.create(**named) if has_upstream else None
    defaults = {"id": "remote", "context_tokens": 1, "backend": "openai"}
    Model.objects.create(**(defaults | fields), upstream=there)


def test_what_is_right_is_no_news() -> None:
    add()

    assert found() == {}


def test_w001_warns_of_an_address_that_is_none() -> None:
    add({"base_url": "there.example"})

    assert found().keys() == {"inference.W001"}
    assert "'there' must begin with https://" in found()["inference.W001"].msg


def test_w002_warns_of_a_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    add({"key": "${env:THEIR_API_KEY}"})
    monkeypatch.delenv("THEIR_API_KEY", raising=False)

    message = found()["inference.W002"]
    assert "the environment has no THEIR_API_KEY" in message.msg
    assert "Set the variable" in str(message.hint)
    monkeypatch.setenv("THEIR_API_KEY", "sk-1234")
    assert found() == {}


def test_w002_warns_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "key"
    add({"key": f"${{file:{file}}}"})

    assert f"the file {file} cannot be read" in found()["inference.W002"].msg
    file.write_text("sk-1234")
    assert found() == {}


def test_w003_warns_of_a_model_without_its_upstream() -> None:
    add(has_upstream=False)

    assert "Model 'remote'" in found()["inference.W003"].msg


def test_w004_warns_of_options_that_there_are_not() -> None:
    add(upstream_options={"sytem": "Be brief."})

    assert "unknown field `sytem`" in found()["inference.W004"].msg


def test_w005_warns_of_a_chain_of_fallbacks_and_of_a_circle() -> None:
    last = Model.objects.create(id="last", context_tokens=1, backend="scripted")
    middle = Model.objects.create(id="middle", context_tokens=1, backend="scripted", fallback=last)
    assert found() == {}
    Model.objects.create(id="first", context_tokens=1, backend="scripted", fallback=middle)
    messages = [each.msg for each in run_checks(databases=["default"])]
    assert "first falls back to middle, which falls back to last itself." in messages
    assert "middle falls back to last and is the fallback of first." in messages
    assert "one other model" in str(found()["inference.W005"].hint)

    Model.objects.filter(pk="first").update(fallback=None)
    Model.objects.filter(pk="last").update(fallback=last)
    assert found().keys() == {"inference.W005"}


def test_w006_warns_of_a_fallback_that_is_off() -> None:
    off = Model.objects.create(id="off", context_tokens=1, backend="scripted", enabled=False)
    Model.objects.create(id="first", context_tokens=1, backend="scripted", fallback=off)

    assert found()["inference.W006"].msg == "first falls back to off, which is disabled."


def test_a_model_that_is_off_is_nobodys_concern() -> None:
    add({"base_url": "there.example"}, enabled=False, upstream_options=[])

    assert found() == {}


def test_an_install_that_is_not_migrated_yet_is_not_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(**_: object) -> None:
        raise ProgrammingError

    monkeypatch.setattr(Model.objects, "filter", fail)

    assert checks.check_upstreams(None, databases=["default"]) == []
    assert checks.check_upstreams(None) == []
