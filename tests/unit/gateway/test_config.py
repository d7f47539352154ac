"""Settings: where they come from, what is refused, and that the documentation tells the truth."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.config import BASE_DIR, Config, ConfigError, load

DEFAULTS = {name: field.get_default() for name, field in Config.model_fields.items()}


@pytest.fixture(autouse=True)
def _fresh(no_settings: pytest.MonkeyPatch) -> Iterator[None]:
    load.cache_clear()
    yield
    load.cache_clear()


def documented() -> dict[str, str]:
    """Return each setting's section of the documentation by its heading."""
    text = (BASE_DIR / "docs" / "configuration.md").read_text(encoding="utf-8")
    sections = re.split(r"^#+ ", text, flags=re.MULTILINE)
    named = (section.partition("\n") for section in sections)
    return {title: body for title, _, body in named if re.fullmatch("[A-Z0-9_]+", title)}


def line(section: str, label: str) -> str:
    found = re.search(rf"^- {label}: (.+)$", section, flags=re.MULTILINE)
    assert found, label
    return found[1]


def shown(default: Any) -> str:
    """Write a default as the documentation does."""
    match default:
        case "" | []:
            return "empty"
        case bool():
            return f"`{str(default).lower()}`"
        case list():
            return f"`{','.join(default)}`"
        case Path():
            return f"`{default.relative_to(BASE_DIR)}`, beside `manage.py`"
        case float():
            return f"`{default:g}`"
        case _:
            return f"`{default}`"


def test_every_setting_has_a_heading_and_every_heading_a_setting() -> None:
    assert documented().keys() == Config.model_fields.keys()


@pytest.mark.parametrize("name", Config.model_fields)
def test_the_documentation_gives_the_meaning_and_the_default(name: str) -> None:
    section = documented()[name]
    assert Config.model_fields[name].description in section.splitlines()
    assert line(section, "Default") == shown(DEFAULTS[name])


@pytest.mark.parametrize("name", Config.model_fields)
def test_the_documented_example_is_accepted_and_changes_something(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable, _, value = line(documented()[name], "Example").strip("`").partition("=")
    assert variable == name
    monkeypatch.setenv(name, value)
    assert getattr(Config(), name) != DEFAULTS[name]


def test_nothing_needs_to_be_set() -> None:
    assert Config().model_dump() == DEFAULTS


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Config.model_fields:
        monkeypatch.setenv(name, "")
        monkeypatch.setenv(f"{name}_FILE", "")
    assert Config().model_dump() == DEFAULTS


def test_names_are_taken_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("port", "1234")
    assert Config().PORT == 8080


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_MODELS", " a, b ,,c")
    assert Config().ENGINE_MODELS == ["a", "b", "c"]


def test_a_relative_data_directory_is_made_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_DIR", "somewhere")
    assert Path.cwd() / "somewhere" == Config().DATA_DIR


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("SECRET_KEY", "s3cret", "s3cret"), ("PORT", "81", 81), ("ENGINE_MODELS", "a,b", ["a", "b"])],
)
def test_every_kind_of_setting_can_come_from_a_file(
    name: str, text: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text(f"  {text}\n", encoding="utf-8")
    monkeypatch.setenv(f"{name}_FILE", str(file))
    assert getattr(Config(), name) == value


def test_a_setting_and_its_file_are_not_taken_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "one")
    monkeypatch.setenv("SECRET_KEY_FILE", str(tmp_path / "two"))
    with pytest.raises(ConfigError, match="set SECRET_KEY or SECRET_KEY_FILE, not both"):
        load()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "SECRET_KEY_FILE: cannot read .*: No such file"),
        (b" \n", "SECRET_KEY_FILE: .* is empty"),
        (b"\xff\xfe", "SECRET_KEY_FILE: .* is not a text file in UTF-8"),
    ],
)
def test_a_file_that_holds_no_text_stops_the_start(
    content: bytes | None, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("SECRET_KEY_FILE", str(file))
    with pytest.raises(ConfigError, match=complaint):
        load()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "abc"),
        ("PORT", "0"),
        ("PORT", "65536"),
        ("DEBUG", "perhaps"),
        ("GATEWAY_ROLE", "everything"),
        ("REQUEST_TIMEOUT_S", "0"),
        ("REQUEST_TIMEOUT_S", "nan"),
        ("REQUEST_TIMEOUT_S", "inf"),
        ("DEAD_AFTER_S", "1"),
        ("DATABASE_URL", "sqlite:///db.sqlite3"),
        ("DATABASE_URL", "postgresql://host"),
        ("DATABASE_URL", "postgresql://[::1/db"),
        ("DATABASE_URL", "postgresql://user:pass/word@host/db"),
        ("REDIS_URL", "http://host"),
        ("REDIS_URL", "redis://:pass/word@host/0"),
        ("LOG_LEVEL", "LOUD"),
    ],
)
def test_a_bad_value_is_refused_by_name(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=rf"\n  .*{name}"):
        load()


def test_every_bad_value_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "abc")
    monkeypatch.setenv("LOG_LEVEL", "LOUD")
    with pytest.raises(ConfigError) as caught:
        load()
    assert [row.split(":")[0].strip() for row in str(caught.value).splitlines()[1:]] == [
        "PORT",
        "LOG_LEVEL",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@host/db",
        "postgres://host:5433/db",
        "postgresql://u@%2Fvar%2Frun/db",
        "postgresql://a:1,b:2/db?target_session_attrs=read-write",
    ],
)
def test_what_libpq_understands_is_a_database_url(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    assert url == Config().DATABASE_URL


SECRETS = {
    "SECRET_KEY": "hunter2" * 8,
    "SECRET_KEY_FALLBACKS": "hunter2,hunter2",
    "DATABASE_URL": "postgresql://u:hunter2@host/db",
    "REDIS_URL": "redis://:hunter2@host/0",
}


def test_secrets_are_not_in_the_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    config = Config()
    assert SECRETS["SECRET_KEY"] == config.SECRET_KEY
    assert "hunter2" not in f"{config!r} {config}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://u:hunter2@host/db"),
        ("DATABASE_URL", "postgresql://u:hunter2/x@host/db"),
        ("DATABASE_URL", "postgresql://u:hunter2@host/db?hunter2=1"),
        ("REDIS_URL", "redis://:hunter2/x@host/0"),
        ("REDIS_URL", "redis:hunter2"),
    ],
)
def test_a_complaint_does_not_repeat_a_secret(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        load()
    assert "hunter2" not in str(caught.value)


def test_a_config_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().PORT = 1  # type: ignore[misc]


def test_a_bad_value_stops_the_start_with_one_clear_message() -> None:
    done = subprocess.run(
        [sys.executable, str(BASE_DIR / "manage.py"), "check"],
        env={**os.environ, "PORT": "abc"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "Tandem cannot start, a setting is wrong:",
        "  PORT: Input should be a valid integer, unable to parse string as an integer",
    ]
