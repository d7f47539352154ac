"""Django's database settings from a URL."""

from __future__ import annotations

from gateway.database import database_settings


def test_every_part_of_the_url_is_taken() -> None:
    found = database_settings("postgresql://me:p%40ss@db.example.org:5433/name?sslmode=require")
    assert found["NAME"] == "name"
    assert found["USER"] == "me"
    assert found["PASSWORD"] == "p@ss"
    assert found["HOST"] == "db.example.org"
    assert found["PORT"] == "5433"
    assert found["OPTIONS"] == {"connect_timeout": 5, "sslmode": "require"}


def test_a_socket_s_folder_keeps_its_case() -> None:
    assert database_settings("postgresql://me@%2FUsers%2FAnn/name")["HOST"] == "/Users/Ann"


def test_the_url_s_own_time_limit_wins() -> None:
    found = database_settings("postgresql://host/name?connect_timeout=30")
    assert found["OPTIONS"] == {"connect_timeout": "30"}
