"""The embedded PostgreSQL and Valkey: prepared, waited for, and, for tests, run on their own."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis

from gateway.supervise import postgres, valkey
from gateway.supervise.layout import Layout
from gateway.supervise.processes import end_with_parent

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Embedded:
    """Where the two running servers answer."""

    database_url: str
    redis_url: str


@contextmanager
def start_embedded(data_dir: Path, timeout_s: float = 30) -> Iterator[Embedded]:
    """Run both servers as children below `data_dir`, stopping them at the end.

    Raises `TimeoutError` if one does not answer in time.
    """
    layout = Layout(data_dir.resolve())
    layout.create()
    postgres.prepare(layout)
    valkey.prepare(layout)
    with ExitStack() as stack:
        stack.enter_context(
            _running(
                postgres.command(layout),
                layout.logs / "postgres.log",
                user=postgres.server_user(),
                stop=signal.SIGINT,
            )
        )
        stack.enter_context(_running(valkey.command(layout), layout.logs / "valkey.log"))
        wait_for_postgres(layout.database_url, timeout_s)
        wait_for_redis(layout.redis_url, timeout_s)
        yield Embedded(layout.database_url, layout.redis_url)


def wait_for_postgres(url: str, timeout_s: float) -> None:
    """Return when the database answers. Raises `TimeoutError` with its last word otherwise."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError as error:
            if time.monotonic() > end:
                raise TimeoutError(f"PostgreSQL does not answer: {error}") from error
            time.sleep(_POLL_S)
        else:
            return


def wait_for_redis(url: str, timeout_s: float) -> None:
    """Return when the Redis-protocol server answers. Raises `TimeoutError` otherwise."""
    end = time.monotonic() + timeout_s
    with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
        while True:
            try:
                client.ping()
            except (redis.ConnectionError, redis.TimeoutError) as error:
                if time.monotonic() > end:
                    raise TimeoutError(f"Redis does not answer: {error}") from error
                time.sleep(_POLL_S)
            else:
                return


@contextmanager
def _running(
    command: list[str], log: Path, user: str | None = None, stop: signal.Signals = signal.SIGTERM
) -> Iterator[None]:
    """Run a command, its output in a file; end it with a signal and wait for it."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            preexec_fn=end_with_parent,
            **postgres.identity(user),
        )
    try:
        yield
    finally:
        process.send_signal(stop)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
