"""The check of an engine, on scripted ones."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from inference.models import Model


def _add_model(**fields: Any) -> None:
    defaults: dict[str, Any] = {
        "id": "Scripted-1",
        "backend": Model.Backend.SCRIPTED,
        "context_tokens": 1024,
        "capacity": 3,
        "engine_options": {"text": "It is Paris."},
        "canary_prompt": "What is the capital of France?",
        "canary_expect": "Paris",
    }
    Model.objects.create(**(defaults | fields))


@pytest.mark.django_db
def test_it_prints_the_canary_and_the_speed() -> None:
    _add_model(aliases=["tandem"])
    output = StringIO()

    call_command("check_engine", "tandem", stdout=output)

    lines = dict(line.split(maxsplit=1) for line in output.getvalue().splitlines()[:2])
    assert lines["canary"] == "What is the capital of France? It is Paris."
    assert lines["loaded"].endswith(" s")
    assert [line[:9] for line in output.getvalue().splitlines()[2:]] == ["1 at once", "3 at once"]


@pytest.mark.django_db
def test_it_measures_a_model_without_a_canary() -> None:
    _add_model(canary_prompt="")
    output = StringIO()

    call_command("check_engine", "scripted-1", stdout=output)

    assert "tokens/s" in output.getvalue()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"text": "Cheese."}, 'canary failed: expected "Paris" in "Cheese."'),
        ({"text": "Paris", "fail_at": 0}, "canary failed: the script says to fail here"),
        ({"volume": 11}, "bad script of Scripted-1"),
    ],
)
def test_it_fails_with_the_reason(options: dict[str, Any], reason: str) -> None:
    _add_model(engine_options=options)

    with pytest.raises(CommandError, match=reason):
        call_command("check_engine", "scripted-1", stdout=StringIO())


@pytest.mark.django_db
def test_it_refuses_a_model_that_is_not_there() -> None:
    with pytest.raises(CommandError, match="no enabled model named 'nothing'"):
        call_command("check_engine", "nothing")
