"""A running Tandem, made of real processes: gateways, engine workers, PostgreSQL and Valkey.

Unlike `manage.py serve` it restarts nothing, so that a test sees what a death does by itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import psycopg
import redis

from gateway.supervise import postgres, valkey
from gateway.supervise.embedded import wait_for_postgres, wait_for_redis
from gateway.supervise.layout import Layout
from inference.transport.frames import EngineReport, decode_report
from inference.transport.keys import Keys

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "acceptance"
PATIENCE_S = 60.0


def eventually(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Wait until the condition returns something true, and return that."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"still not after {patience_s} s: {what}")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """One process of the stack, its output in a file."""

    def __init__(self, name: str, command: list[str], log: Path, **options: Any) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **options,
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """End it and its children without a word."""
        self._signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end, and insist when it does not."""
        if self.alive:
            self.process.send_signal(number)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.kill()
        self._signal(signal.SIGKILL)
        return self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


class Gateway(Server):
    """A gateway process and the address it answers on."""

    url: str


class Stack:
    """Starts and ends processes that share one database, one Valkey and one set of keys."""

    def __init__(self, data_dir: Path, **settings: str) -> None:
        self.layout = Layout(data_dir)
        self.keys = Keys(PREFIX)
        self._settings = settings
        self._servers: list[Server] = []

    def __enter__(self) -> Self:
        self.layout.create()
        postgres.prepare(self.layout)
        valkey.prepare(self.layout)
        self._start(
            "postgres",
            postgres.command(self.layout),
            cwd="/",
            **postgres.identity(postgres.server_user()),
        )
        self.start_valkey()
        wait_for_postgres(self.layout.database_url, PATIENCE_S)
        self.manage("migrate", "-v0")
        self.key = self.manage("create_api_key", "acceptance").strip()
        return self

    def __exit__(self, *_: object) -> None:
        for server in reversed(self._servers):
            server.stop(signal.SIGINT if server.name == "postgres" else signal.SIGTERM)

    def _start(self, name: str, command: list[str], **options: Any) -> Server:
        server = Server(name, command, self.layout.logs / f"{name}.log", **options)
        self._servers.append(server)
        return server

    def environment(self, **settings: str) -> dict[str, str]:
        """The environment of every process."""
        return {
            **os.environ,
            "DATA_DIR": str(self.layout.data_dir),
            "DATABASE_URL": self.layout.database_url,
            "REDIS_URL": self.layout.redis_url,
            "REDIS_PREFIX": PREFIX,
            "ALLOWED_HOSTS": "*",
            **self._settings,
            **settings,
        }

    def manage(self, *arguments: str) -> str:
        """Run a management command and return its standard output."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment(),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    def start_valkey(self) -> Server:
        """Start the Redis-protocol server, with whatever data it had."""
        server = self._start("valkey", valkey.command(self.layout))
        wait_for_redis(self.layout.redis_url, PATIENCE_S)
        return server

    def add_model(self, model: str, backend: str = "scripted", **fields: Any) -> None:
        """Put a model into the catalogue."""
        row = {"context_tokens": 100_000, "capacity": 64, "engine_options": {}} | fields
        columns = ", ".join(row)
        values = [json.dumps(v) if isinstance(v, dict | list) else v for v in row.values()]
        defaults = {
            "display_name": "",
            "aliases": "[]",
            "weights": "",
            "max_waiting": 256,
            "workers": 1,
            "canary_prompt": "",
            "canary_expect": "",
            "enabled": True,
        }
        for name, value in defaults.items():
            if name not in row:
                columns += f", {name}"
                values.append(value)
        marks = ", ".join(["%s"] * len(values))
        with psycopg.connect(self.layout.database_url) as connection:
            connection.execute(
                f"INSERT INTO inference_model (id, backend, created_at, {columns})"  # noqa: S608
                f" VALUES (%s, %s, now(), {marks})",
                [model, backend, *values],
            )
        self.redis.publish(self.keys.nudges, "catalogue")

    def start_gateway(self, **settings: str) -> Gateway:
        """Start a gateway and wait until it answers."""
        port = free_port()
        command = [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port)]
        command += ["--access-log", os.devnull, "gateway.asgi:application"]
        gateway = Gateway(
            "gateway",
            command,
            self.layout.logs / f"gateway-{port}.log",
            cwd=ROOT,
            env=self.environment(**settings),
        )
        self._servers.append(gateway)
        gateway.url = f"http://127.0.0.1:{port}"
        eventually(lambda: self._answers(gateway), "the gateway answers")
        return gateway

    @staticmethod
    def _answers(gateway: Gateway) -> bool:
        try:
            return httpx.get(f"{gateway.url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def start_worker(self, model: str, **settings: str) -> Server:
        """Start an engine worker and wait until its engine is ready."""
        number = len(self._servers)
        command = [sys.executable, "-m", "celery", "-A", "jobs", "worker", "-P", "threads"]
        command += ["-c", "2", "-Q", f"engine.{model}", "-n", f"engine-{number}@%h"]
        worker = self._start(
            f"worker-{number}",
            command,
            cwd=ROOT,
            env=self.environment(ENGINE_MODELS=model, **settings),
        )
        eventually(
            lambda: any(r.pid == worker.process.pid and r.state == "ready" for r in self.reports()),
            f"the engine of {model} is ready (see {worker.log})",
        )
        return worker

    @property
    def redis(self) -> redis.Redis:
        """A client of the stack's Valkey."""
        return redis.Redis.from_url(self.layout.redis_url)

    def reports(self) -> list[EngineReport]:
        """The heartbeats that are in Redis now."""
        client = self.redis
        ids = [raw.decode() for raw in client.smembers(self.keys.engines)]  # type: ignore[union-attr]
        values = [client.get(self.keys.engine(engine_id)) for engine_id in ids]
        return [decode_report(value) for value in values if value]  # type: ignore[arg-type]

    def in_flight(self) -> int:
        """Requests that engines are running, by their own count."""
        return sum(report.in_flight for report in self.reports())


@contextmanager
def seen_by(gateway: Gateway, model: str, state: str = "ready") -> Iterator[None]:
    """Enter once the gateway sees an engine of the model in that state."""

    def state_of() -> bool:
        body = httpx.get(f"{gateway.url}/readyz").json()
        return bool(body["models"].get(model, {}).get("state") == state)

    eventually(state_of, f"{model} is {state} for the gateway")
    yield
