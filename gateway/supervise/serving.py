"""Everything that one machine runs: started in order, watched, and stopped without a trace."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connections

from gateway.config import BASE_DIR, Config
from gateway.supervise import first_run, postgres, valkey
from gateway.supervise.console import Progress, Running, banner
from gateway.supervise.embedded import wait_for_postgres, wait_for_redis
from gateway.supervise.layout import Layout
from gateway.supervise.processes import (
    adopt_orphans,
    end_descendants,
    end_orphans,
)
from gateway.supervise.programs import Program, embedded_servers, services
from gateway.supervise.readiness import Readiness, ask
from gateway.supervise.supervisord import Supervisord, SupervisordError
from inference.catalogue import load_catalogue
from inference.weights import DEFAULT_MODEL, has_default_weights

_SERVERS_UP_S = 30
_SUPERVISORD_UP_S = 15
_GATEWAY_UP_S = 60
_SERVICES_STOP_S = 6
_SERVERS_STOP_S = 3
_LAST_GRACE_S = 1
_POLL_S = 0.2
_WATCH_S = 1


class ServeError(Exception):
    """The start failed; the message says why, and where to read more."""


def serve(config: Config, layout: Layout, held: int, progress: Progress) -> None:
    """Run everything until this process is told to stop, which raises `SystemExit` in here.

    `held` is the descriptor by which the data directory is held: the process manager inherits it,
    so that nobody else gets in before the last of its programs has ended. Raises `ServeError` or
    `SupervisordError`; nothing is left running in any case.
    """
    adopt_orphans()
    environment = child_environment(config, layout)
    with _supervisord(layout, environment, held) as supervisord:
        progress.wait_for("Starting the servers")
        servers = _start_servers(config, layout, supervisord)
        progress.wait_for("Preparing the database")
        first_run.migrate()
        if first_run.serves_default_model() and not has_default_weights(layout.models):
            _fetch_weights(environment, progress)
        supervisord.run([*servers, *services(config, layout, load_catalogue().entries)])
        ready = _wait_until_ready(config, layout, supervisord, progress)
        progress.say(banner(_running(config, layout, ready)))
        connections.close_all()
        _watch(supervisord)


def child_environment(config: Config, layout: Layout) -> dict[str, str]:
    """Return this process's environment with the embedded servers' addresses, for the children."""
    environment = {
        **os.environ,
        "DATA_DIR": str(layout.data_dir),
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if not config.DATABASE_URL:
        environment["DATABASE_URL"] = layout.database_url
    if not config.REDIS_URL:
        environment["REDIS_URL"] = layout.redis_url
    # Each engine worker is given its own; nobody else owns an engine.
    # And a setting that is given here must not be given by a file as well.
    for name in ("ENGINE_MODELS", "ENGINE_MODELS_FILE", "DATA_DIR_FILE"):
        environment.pop(name, None)
    return environment


@contextmanager
def _supervisord(layout: Layout, environment: dict[str, str], held: int) -> Iterator[Supervisord]:
    """Run supervisord; at the end stop the services, then the servers, then all that is left."""
    try:
        supervisord = Supervisord(layout, environment, inherit=[held])
        try:
            supervisord.wait_until_up(_SUPERVISORD_UP_S)
            yield supervisord
        finally:
            # A second Ctrl-C must not cut this short; it is bounded anyway.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            servers = {"postgres", "valkey"}
            supervisord.stop(lambda name: name not in servers, _SERVICES_STOP_S)
            supervisord.stop(lambda name: name in servers, _SERVERS_STOP_S)
            supervisord.shut_down(_LAST_GRACE_S)
    finally:
        end_descendants(_LAST_GRACE_S)


def _start_servers(config: Config, layout: Layout, supervisord: Supervisord) -> list[Program]:
    """Start the embedded servers and wait until those in use, embedded or not, answer."""
    try:
        if not config.DATABASE_URL:
            postgres.prepare(layout)
        if not config.REDIS_URL:
            valkey.prepare(layout)
        servers = embedded_servers(config, layout)
        supervisord.run(servers)
        wait_for_postgres(config.DATABASE_URL or layout.database_url, _SERVERS_UP_S)
        wait_for_redis(config.REDIS_URL or layout.redis_url, _SERVERS_UP_S)
    except (postgres.PostgresError, TimeoutError) as error:
        raise ServeError(f"{error}\nLogs are in {layout.logs}") from error
    return servers


def _fetch_weights(environment: dict[str, str], progress: Progress) -> None:
    """Run `fetch_model`, in a process of its own so that its memory goes with it."""
    progress.say(f"Fetching the default model, {DEFAULT_MODEL}")
    done = subprocess.run(
        [sys.executable, str(BASE_DIR / "manage.py"), "fetch_model"],
        env=environment,
        start_new_session=True,
        check=False,
    )
    if done.returncode != 0:
        raise ServeError("the default model could not be fetched")


def _wait_until_ready(
    config: Config, layout: Layout, supervisord: Supervisord, progress: Progress
) -> Readiness:
    """Return when every engine has passed its canary. Raises `ServeError` when one never will."""
    host = reachable_host(config.HOST)
    stage = "Starting the gateway"
    answered_at = time.monotonic()
    while True:
        readiness = ask(host, config.PORT)
        if readiness is not None:
            if readiness.failures:
                raise ServeError(f"{_because(readiness)}\nLogs are in {layout.logs}")
            if readiness.is_ready:
                return readiness
            stage = f"Starting the engines: {_states(readiness)}"
            answered_at = time.monotonic()
        elif time.monotonic() - answered_at > _GATEWAY_UP_S:
            raise ServeError(f"the gateway does not answer; its log is in {layout.logs}")
        progress.wait_for(stage)
        _check(supervisord)
        if dead := supervisord.given_up():
            raise ServeError(f"{', '.join(dead)} ended at every start; logs are in {layout.logs}")
        time.sleep(_POLL_S)


def _because(readiness: Readiness) -> str:
    return "\n".join(
        f"{model} cannot serve: {reason}" for model, reason in readiness.failures.items()
    )


def _states(readiness: Readiness) -> str:
    return ", ".join(f"{model} is {state}" for model, state in readiness.models.items())


def _running(config: Config, layout: Layout, ready: Readiness) -> Running:
    """Make the operator's account and the first key, now that they can be shown."""
    models = sorted(ready.models, key=lambda name: (name != DEFAULT_MODEL, name))
    return Running(
        address=f"http://{reachable_host(config.HOST)}:{config.PORT}",
        model=models[0] if models else None,
        manage=f"{shlex.quote(_shortest(Path(sys.executable)))} manage.py",
        logs=layout.logs,
        key=first_run.mint_first_key(),
        operator=first_run.OPERATOR,
        password=first_run.make_operator(),
    )


def _watch(supervisord: Supervisord) -> None:
    """Keep what runs running. Raises `SupervisordError` when that is over."""
    while True:
        _check(supervisord)
        end_orphans(keep=supervisord.pid)
        supervisord.revive()
        time.sleep(_WATCH_S)


def _check(supervisord: Supervisord) -> None:
    if not supervisord.is_alive:
        raise SupervisordError("the process manager died")


def reachable_host(host: str) -> str:
    """Return the address under which this machine reaches what listens on `host`."""
    return "127.0.0.1" if host == "0.0.0.0" else host


def _shortest(path: Path) -> str:
    return str(path.relative_to(BASE_DIR)) if path.is_relative_to(BASE_DIR) else str(path)
