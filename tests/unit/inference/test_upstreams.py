"""What an operator says of an upstream."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inference.errors import ErrorCode, TandemError
from inference.upstreams import KEY_PATTERN, key_of, read_options, read_secrets, url_fault


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com/v1",
        "https://api.anthropic.com",
        "http://vllm:8000/v1/",
        "http://[::1]:8000",
    ],
)
def test_an_address_is_taken(url: str) -> None:
    assert url_fault(url) is None


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", "must begin with"),
        ("api.openai.com/v1", "must begin with"),
        ("ftp://there.example", "must begin with"),
        ("https:///v1", "must begin with"),
        ("https://there.example:port", "is no URL"),
        ("https://[::1", "is no URL"),
        ("https://user:secret@there.example", "must not contain a user"),
        ("https://there.example?key=secret", "must end with its path"),
        ("https://there.example#there", "must end with its path"),
    ],
)
def test_an_address_that_would_not_work_is_refused(url: str, fault: str) -> None:
    found = url_fault(url)

    assert found is not None
    assert fault in found
    assert "secret" not in found


@pytest.mark.parametrize(
    ("key", "taken"),
    [
        ("${env:OPENAI_API_KEY}", True),
        ("${file:/run/secrets/openai}", True),
        ("sk-1234", False),
        ("Bearer ${env:KEY}", False),
        ("${env:}", False),
        ("${file:relative}", False),
        ("${env:A}${env:B}", False),
    ],
)
def test_a_key_is_only_referred_to(key: str, taken: bool) -> None:
    assert bool(re.search(KEY_PATTERN, key)) == taken


def test_a_key_is_read_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("from-a-file\n")
    monkeypatch.setenv("THEIR_API_KEY", "from-the-environment")

    assert key_of(read_secrets(f"${{file:{tmp_path}/key}}")) == "from-a-file"
    assert key_of(read_secrets("${env:THEIR_API_KEY}")) == "from-the-environment"
    assert key_of(read_secrets("")) == ""


def test_a_key_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THEIR_API_KEY", raising=False)

    for key, why in [
        ("${env:THEIR_API_KEY}", "the environment has no THEIR_API_KEY"),
        ("${file:/does/not/exist}", "the file /does/not/exist cannot be read"),
    ]:
        with pytest.raises(TandemError, match=why) as caught:
            read_secrets(key)
        assert caught.value.code is ErrorCode.ENGINE_FAILED


@pytest.mark.parametrize("content", ["", "two\nlines", "schlüssel"])
def test_what_is_no_key_is_told_without_saying_it(content: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(content)

    with pytest.raises(TandemError, match="is no key") as caught:
        read_secrets(f"${{file:{file}}}")

    assert not content or content not in caught.value.message


def test_options_have_defaults() -> None:
    options = read_options({})

    assert (options.system, options.parameters, options.accepts) == ("", {}, frozenset())
    assert options.default_max_tokens == 4096
    assert options.max_tokens_field == "max_completion_tokens"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "Expected `object`"),
        ({"sytem": ""}, "unknown field `sytem`"),
        ({"accepts": ["seed"]}, "Invalid enum value 'seed'"),
        ({"default_max_tokens": 0}, ">= 1"),
        ({"parameters": {"stream": False}}, "must not contain 'stream'"),
    ],
)
def test_options_that_there_are_not_are_refused(options: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_options(options)
