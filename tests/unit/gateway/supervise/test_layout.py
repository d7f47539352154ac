"""Where the embedded servers live and answer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest

from gateway.supervise.layout import Layout


def test_sockets_are_in_the_data_directory_where_the_path_is_short_enough() -> None:
    layout = Layout(Path("/srv/tandem"))
    assert layout.sockets == Path("/srv/tandem/run")
    assert layout.redis_url == "unix:///srv/tandem/run/valkey.sock"


def test_sockets_of_a_deep_data_directory_fit_into_a_socket_address() -> None:
    layout = Layout(Path("/srv") / ("deep" * 30))
    assert len(os.fsencode(layout.postgres_sockets / ".s.PGSQL.5432.lock")) <= 107
    assert len(os.fsencode(layout.valkey_socket)) <= 107


def test_deep_data_directories_do_not_share_sockets() -> None:
    one, two = (Layout(Path("/srv") / ("deep" * 30) / name) for name in ("one", "two"))
    assert one.sockets != two.sockets


def test_a_folder_name_with_special_characters_survives_the_addresses() -> None:
    layout = Layout(Path("/srv/my data %1"))
    assert unquote(layout.redis_url) == "unix:///srv/my data %1/run/valkey.sock"
    assert "my%20data%20%251" in layout.database_url


def test_others_can_neither_list_the_sockets_nor_read_the_logs(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.create()
    assert layout.sockets.stat().st_mode & 0o777 == 0o711
    assert layout.logs.stat().st_mode & 0o777 == 0o700


def test_it_refuses_a_sockets_folder_that_is_a_link(tmp_path: Path) -> None:
    layout = Layout(tmp_path / ("deep" * 30))
    layout.sockets.symlink_to(tmp_path, target_is_directory=True)
    try:
        with pytest.raises(PermissionError, match="belongs to another user"):
            layout.create()
    finally:
        layout.sockets.unlink()


def test_it_refuses_a_sockets_folder_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path / ("deep" * 30))
    sockets = layout.sockets
    sockets.mkdir()
    try:
        # The name holds the user's id, so the folder is looked up before the user changes.
        monkeypatch.setattr(Layout, "sockets", sockets)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(PermissionError, match="belongs to another user"):
            layout.create()
    finally:
        shutil.rmtree(sockets)
