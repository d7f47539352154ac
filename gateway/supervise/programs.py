"""The processes of one machine, as the process manager shall run them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gateway.config import BASE_DIR, Config
from gateway.supervise import postgres, valkey
from gateway.supervise.layout import Layout
from inference.catalogue import ModelEntry

# Together they bound how long a shutdown takes: services stop side by side, then the servers.
_SERVICE_STOP_S = 5
_SERVER_STOP_S = 2
# What ends sooner than this after its start did not start. Long enough to import everything.
_SERVICE_START_S = 10
_SERVER_START_S = 1
# Each retry waits a second longer than the one before. PostgreSQL may need a few after it was
# killed: until its last child is gone, its memory counts as in use.
_SERVER_RETRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command that is kept running, in `copies` processes."""

    name: str
    command: list[str]
    folder: Path = BASE_DIR
    environment: dict[str, str] = field(default_factory=dict)
    user: str | None = None
    copies: int = 1
    listen: str = ""
    """HOST:PORT of a listening socket that every copy gets as its standard input."""
    start_s: int = _SERVICE_START_S
    retries: int = 3
    stop_s: int = _SERVICE_STOP_S
    stop_signal: str = "TERM"


def embedded_servers(config: Config, layout: Layout) -> list[Program]:
    """Return the servers that no address in the settings stands in for."""
    programs = []
    if not config.DATABASE_URL:
        programs.append(
            Program(
                name="postgres",
                command=postgres.command(layout),
                folder=Path("/"),
                user=postgres.server_user(),
                # Disconnect the clients and shut down in order; TERM would wait for them.
                stop_signal="INT",
                start_s=_SERVER_START_S,
                retries=_SERVER_RETRIES,
                stop_s=_SERVER_STOP_S,
            )
        )
    if not config.REDIS_URL:
        programs.append(
            Program(
                name="valkey",
                command=valkey.command(layout),
                folder=Path("/"),
                start_s=_SERVER_START_S,
                retries=_SERVER_RETRIES,
                stop_s=_SERVER_STOP_S,
            )
        )
    return programs


def services(config: Config, layout: Layout, models: Iterable[ModelEntry]) -> list[Program]:
    """Return gateway, clerk, beat, and the engine workers of these models."""
    gateway = Program(
        name="gateway",
        command=[
            *(sys.executable, "-m", "daphne", "--fd", "0", "--verbosity", "0"),
            "gateway.asgi:application",
        ],
        copies=config.GATEWAY_PROCESSES,
        listen=f"{config.HOST}:{config.PORT}",
    )
    clerk = Program(name="clerk", command=_worker(config, "clerk", "default"))
    beat = Program(
        name="beat",
        command=[
            *_celery("beat", config),
            *("--schedule", str(layout.run / "beat-schedule"), "--pidfile", ""),
        ],
    )
    return [gateway, clerk, beat, *_engines(config, models)]


def _engines(config: Config, models: Iterable[ModelEntry]) -> list[Program]:
    models = list(models)
    own = [model for model in models for _ in range(model.workers) if model.upstream is None]
    engines = [
        _engine(config, f"engine-{number}-{re.sub('[^A-Za-z0-9.]+', '-', model.id)}", [model.id])
        for number, model in enumerate(own, start=1)
    ]
    return [*engines, *_upstreams(config, [model for model in models if model.upstream])]


def _upstreams(config: Config, models: list[ModelEntry]) -> Iterator[Program]:
    """Yield the workers of models that others run: they only wait, so one is enough for all."""
    for number in range(max((model.workers for model in models), default=0)):
        ids = [model.id for model in models if number < model.workers]
        yield _engine(config, f"upstreams-{number + 1}", ids)


def _engine(config: Config, name: str, models: list[str]) -> Program:
    queues = ",".join(f"engine.{model}" for model in models)
    return Program(
        name=name,
        command=_worker(config, name, queues),
        environment={"ENGINE_MODELS": ",".join(models)},
    )


def _worker(config: Config, name: str, queues: str) -> list[str]:
    return [
        *_celery("worker", config),
        *("--pool", "threads", "--concurrency", "2", "--without-gossip", "--without-mingle"),
        *("--queues", queues, "--hostname", f"{name}@%h"),
    ]


def _celery(command: str, config: Config) -> list[str]:
    return [sys.executable, "-m", "celery", "-A", "jobs", command, "--loglevel", config.LOG_LEVEL]
