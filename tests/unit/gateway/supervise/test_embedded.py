"""The embedded PostgreSQL and Valkey, really started."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from gateway.supervise import postgres
from gateway.supervise.embedded import (
    Embedded,
    start_embedded,
    wait_for_postgres,
    wait_for_redis,
)
from gateway.supervise.layout import Layout


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("embedded") / "with space"


@pytest.fixture(scope="module")
def servers(data_dir: Path) -> Iterator[Embedded]:
    with start_embedded(data_dir) as servers:
        yield servers


def test_the_database_is_there_with_utf_8_and_utc(servers: Embedded) -> None:
    with psycopg.connect(servers.database_url) as connection:
        found = connection.execute(
            "SELECT current_database(), current_setting('server_encoding'),"
            " current_setting('TimeZone'), current_setting('fsync')"
        ).fetchone()
    assert found == ("tandem", "UTF8", "UTC", "on")


def test_nothing_is_evicted_and_writes_go_to_disk(servers: Embedded) -> None:
    with redis.Redis.from_url(servers.redis_url, decode_responses=True) as client:
        config = client.config_get("maxmemory-policy", "appendonly", "appendfsync")
    assert config == {
        "maxmemory-policy": "noeviction",
        "appendonly": "yes",
        "appendfsync": "everysec",
    }


def test_other_users_cannot_reach_the_sockets(servers: Embedded, data_dir: Path) -> None:
    layout = Layout(data_dir)
    for path in (layout.postgres_sockets, layout.valkey_socket, layout.postgres, layout.valkey):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_what_was_written_is_there_after_a_stop_and_a_start(tmp_path: Path) -> None:
    with start_embedded(tmp_path) as servers:
        with psycopg.connect(servers.database_url) as connection:
            connection.execute("CREATE TABLE kept ()")
        with redis.Redis.from_url(servers.redis_url) as client:
            client.set("kept", "1")
    with start_embedded(tmp_path) as servers:
        with psycopg.connect(servers.database_url) as connection:
            connection.execute("SELECT FROM kept")
        with redis.Redis.from_url(servers.redis_url) as client:
            assert client.get("kept") == b"1"


def test_a_cluster_that_was_begun_and_not_finished_is_made_anew(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.create()
    draft = tmp_path / "postgres.draft"
    draft.mkdir()
    (draft / "half").touch()
    postgres.prepare(layout)
    assert (layout.postgres / "PG_VERSION").exists()
    assert not draft.exists()


def test_a_failure_is_told_in_postgresqls_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path)
    layout.create()
    monkeypatch.setattr(postgres, "_OWNER", "pg_reserved")
    with pytest.raises(postgres.PostgresError, match=r"initdb failed: .*pg_"):
        postgres.prepare(layout)


def test_a_database_that_does_not_answer_is_a_timeout(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="PostgreSQL does not answer"):
        wait_for_postgres(Layout(tmp_path).database_url, 0)


def test_a_redis_that_does_not_answer_is_a_timeout(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="Redis does not answer"):
        wait_for_redis(Layout(tmp_path).redis_url, 0)
