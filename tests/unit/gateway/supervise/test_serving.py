"""What serve hands down to the processes that it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import Config
from gateway.supervise.layout import Layout
from gateway.supervise.serving import child_environment


def test_no_setting_is_handed_down_twice(no_settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.write_text(str(tmp_path))
    no_settings.setenv("DATA_DIR_FILE", str(folder))
    no_settings.setenv("SECRET_KEY", "s" * 40)
    config = Config()
    environment = child_environment(config, Layout(config.DATA_DIR))
    assert environment["DATA_DIR"] == str(tmp_path)
    assert "DATA_DIR_FILE" not in environment
    assert environment["SECRET_KEY"] == "s" * 40
