"""The install's secret key."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.config import Config, ConfigError
from gateway.secret import secret_key


def test_the_operator_s_key_is_used_and_nothing_is_written(tmp_path: Path) -> None:
    assert secret_key(Config(SECRET_KEY="given", DATA_DIR=tmp_path)) == "given"
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_made_once_and_kept_for_its_owner_alone(
    no_settings: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = Config(DATA_DIR=tmp_path / "new")
    made = secret_key(config)
    assert len(made) >= 50
    assert secret_key(config) == made
    (file,) = config.DATA_DIR.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_processes_that_start_together_agree_on_one_key(
    no_settings: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = Config(DATA_DIR=tmp_path)
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: secret_key(config), range(8)))
    assert len(keys) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_data_directory_that_cannot_hold_it_is_named(
    no_settings: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"DATA_DIR: cannot keep a secret key in .*: Not a dir"):
        secret_key(Config(DATA_DIR=tmp_path / "file" / "below"))
