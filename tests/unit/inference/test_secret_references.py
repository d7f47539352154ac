"""Secrets are found where they are referred to, and hidden where they do not belong."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference.secret_references import SecretError, Secrets, is_reference


def test_a_secret_is_read_from_the_environment_or_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("A_KEY", "sk-one")
    path = tmp_path / "key"
    path.write_text("sk-two\n")
    secrets = Secrets({"a": "Bearer ${env:A_KEY}", "b": f"${{file:{path}}}", "c": "plain"})
    assert secrets.values == {"a": "Bearer sk-one", "b": "sk-two", "c": "plain"}


def test_all_of_them_are_hidden_the_longest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT", "secret-1")
    monkeypatch.setenv("LONG", "secret-1-and-more")
    monkeypatch.setenv("TINY", "abc")
    secrets = Secrets({"a": "${env:SHORT}${env:LONG}", "b": "${env:TINY}"})
    assert secrets.hide("secret-1-and-more, secret-1, abc") == "[secret], [secret], abc"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${env:SURELY_NOT_SET}", "the environment has no SURELY_NOT_SET"),
        ("${file:/nowhere/at/all}", "the file /nowhere/at/all cannot be read"),
    ],
)
def test_one_that_is_not_there_is_named_by_its_reference(text: str, reason: str) -> None:
    with pytest.raises(SecretError, match=f"^{reason}$"):
        Secrets({"a": text})


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(SecretError):
        Secrets({"a": "${env:EMPTY}"})


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("${env:A}", True),
        ("Bearer ${file:/run/secrets/a}", True),
        ("sk-plain", False),
        ("${A}", False),
        ("${env:}", False),
    ],
)
def test_a_text_that_refers_to_no_secret_may_be_one(text: str, is_one: bool) -> None:
    assert is_reference(text) is is_one
