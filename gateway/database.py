"""Django's view of the database, from a PostgreSQL URL."""

from __future__ import annotations

from typing import Any

from psycopg.conninfo import conninfo_to_dict


def database_settings(url: str) -> dict[str, Any]:
    """Return Django's settings for the database at this URL.

    The URL is taken apart by libpq itself, so that everything that `psql` understands works:
    sockets as percent-encoded hosts, several hosts, `sslmode` and other parameters.
    """
    parts: dict[str, Any] = {"connect_timeout": 5} | conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.pop("dbname"),
        "USER": parts.pop("user", ""),
        "PASSWORD": parts.pop("password", ""),
        "HOST": parts.pop("host", ""),
        "PORT": parts.pop("port", ""),
        "OPTIONS": parts,
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }
