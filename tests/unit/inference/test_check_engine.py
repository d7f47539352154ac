"""The check of an engine, on scripted ones."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from django.core.management import call_command
from django.core.management.base import CommandError

from inference.models import Model, Upstream
from tests.contracts.requests import make_entry
from tests.upstream_server import UpstreamServer, error_reply


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


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[UpstreamServer]:
    """Return an upstream that runs in a thread of its own, and runs a model."""
    monkeypatch.setenv("THEIR_API_KEY", "sk-planted-secret")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(UpstreamServer(make_entry())) as running,
    ):
        there = Upstream.objects.create(
            name="there", base_url=f"{running.url}/v1", key="${env:THEIR_API_KEY}"
        )
        _add_model(backend=Model.Backend.OPENAI, upstream=there, canary_prompt="")
        yield running


@pytest.mark.django_db
def test_a_model_of_an_upstream_is_asked_once_before_it_is_measured(
    upstream: UpstreamServer,
) -> None:
    output = StringIO()

    call_command("check_engine", "scripted-1", stdout=output)

    assert output.getvalue().startswith("first answer ")
    assert len(upstream.received) == 1 + 1 + 3


@pytest.mark.django_db
def test_what_an_upstream_says_of_the_account_is_told(upstream: UpstreamServer) -> None:
    said = {"message": "Incorrect API key: sk-planted-secret", "type": "authentication_error"}
    upstream.replies.append(error_reply(401, said))

    with pytest.raises(CommandError, match=r"401.*Incorrect API key: \[secret\]"):
        call_command("check_engine", "scripted-1", stdout=StringIO())
