"""A running Tandem, made of real processes: gateways, engine workers, PostgreSQL and Valkey.

Unlike `manage.py serve` it restarts nothing, so that a test sees what a death does by itself.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import httpx
import psycopg
from psycopg.types.json import Jsonb

from gateway.supervise import postgres, valkey
from gateway.supervise.embedded import wait_for_postgres, wait_for_redis
from gateway.supervise.layout import Layout
from gateway.supervise.processes import end_with_parent
from inference.models import McpServer, Model, Upstream
from inference.request import Lane
from inference.transport.connection import connect_sync
from inference.transport.frames import EngineReport, EngineState, decode_report
from inference.transport.keys import Keys

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "acceptance"
PATIENCE_S = 60.0
_STOP_PATIENCE_S = 20.0


def eventually(condition: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
    """Wait until the condition returns something true, and return that."""
    end = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < end, f"still not after {patience_s:.0f} s: {what}"
        time.sleep(0.02)
    return value


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def insert_model(database_url: str, model: str, **fields: Any) -> None:
    """Put a model into a catalogue. What is not named is as in the admin's empty form."""
    empty = {field.attname: field.get_default() for field in Model._meta.fields}
    row: dict[str, Any] = empty | fields | {"id": model}
    del row["created_at"]
    columns, marks = ", ".join(row), ", ".join("%s" for _ in row)
    values = [Jsonb(value) if isinstance(value, dict | list) else value for value in row.values()]
    with psycopg.connect(database_url) as connection:
        connection.execute(
            f"INSERT INTO inference_model (created_at, {columns})"  # noqa: S608
            f" VALUES (now(), {marks})",
            values,
        )


def insert_upstream(database_url: str, name: str, **fields: Any) -> None:
    """Put an upstream into a catalogue. What is not named is as in the admin's empty form."""
    empty = {field.attname: field.get_default() for field in Upstream._meta.fields}
    row: dict[str, Any] = empty | fields | {"name": name}
    columns, marks = ", ".join(row), ", ".join("%s" for _ in row)
    with psycopg.connect(database_url) as connection:
        connection.execute(
            f"INSERT INTO inference_upstream ({columns}) VALUES ({marks})",  # noqa: S608
            list(row.values()),
        )


def insert_mcp_server(database_url: str, name: str, *models: str, **fields: Any) -> None:
    """Put an MCP server into a catalogue, and give its tools to these models."""
    empty = {field.attname: field.get_default() for field in McpServer._meta.fields}
    row: dict[str, Any] = empty | fields | {"name": name}
    columns, marks = ", ".join(row), ", ".join("%s" for _ in row)
    values = [Jsonb(value) if isinstance(value, dict | list) else value for value in row.values()]
    with psycopg.connect(database_url) as connection:
        connection.execute(
            f"INSERT INTO inference_mcpserver ({columns}) VALUES ({marks})",  # noqa: S608
            values,
        )
        for model in models:
            connection.execute(
                "INSERT INTO inference_model_mcp_servers (model_id, mcpserver_id) VALUES (%s, %s)",
                [model, name],
            )


class Server:
    """One process of the stack, its output in a file."""

    def __init__(
        self,
        command: list[str],
        log: Path,
        *,
        folder: Path = ROOT,
        stop_signal: signal.Signals = signal.SIGTERM,
        **options: Any,
    ) -> None:
        self.log = log
        self._stop_signal = stop_signal
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
                preexec_fn=end_with_parent,
                **options,
            )

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it and its children without a word."""
        self._signal_group(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end, insist when it does not, and return its exit status."""
        if self.alive:
            self.process.send_signal(self._stop_signal)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=_STOP_PATIENCE_S)
        self.kill()
        return self.process.returncode

    def wait_for_end(self) -> int:
        """Wait until it ends by itself, and return its exit status."""
        eventually(lambda: not self.alive, f"the process ends (see {self.log})")
        return self.process.returncode

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Gateway:
    """A gateway process and the address it answers on."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def readiness(self) -> dict[str, Any]:
        """What it says in `/readyz`."""
        return cast("dict[str, Any]", httpx.get(f"{self.url}/readyz").json())

    def model_state(self, model: str) -> dict[str, Any]:
        """What it says about one model in `/readyz`; empty while it does not know it."""
        return cast("dict[str, Any]", self.readiness()["models"].get(model, {}))

    def wait_for_model(self, model: str, state: str = "ready", engines: int = 1) -> None:
        """Wait until it sees so many engines of the model in this state."""
        wanted = {"state": state, "engines": engines}
        eventually(
            lambda: wanted.items() <= self.model_state(model).items(),
            f"the gateway sees {model} {state} with {engines} engines",
        )

    def in_flight(self) -> int:
        """Requests that it has handed on, or is about to, and that have not ended."""
        metrics = httpx.get(f"{self.url}/metrics").text
        found = re.search(r"^tandem_requests_in_flight (\d+)", metrics, re.MULTILINE)
        assert found is not None
        return int(found[1])

    def answers(self) -> bool:
        """Whether it is up."""
        try:
            return httpx.get(f"{self.url}/healthz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False


class Stack:
    """Starts and ends processes that share one database, one Valkey and one set of keys."""

    def __init__(self, data_dir: Path) -> None:
        self.layout = Layout(data_dir)
        self.keys = Keys(PREFIX)
        self.redis = connect_sync(self.layout.redis_url)
        self._cleanup = ExitStack()
        self._started = 0

    def __enter__(self) -> Self:
        with self._cleanup as cleanup:
            cleanup.callback(self.redis.close)
            self.layout.create()
            postgres.prepare(self.layout)
            valkey.prepare(self.layout)
            self.postgres = self.start_postgres()
            self.valkey = self.start_valkey()
            self.manage("migrate", "-v0")
            self.key = self.mint("acceptance")
            # Everything is up: from here on `__exit__` ends it.
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _start(self, name: str, command: list[str], **options: Any) -> Server:
        self._started += 1
        log = self.layout.logs / f"{self._started:02}-{name}.log"
        server = Server(command, log, **options)
        self._cleanup.callback(server.stop)
        return server

    def _environment(self, settings: dict[str, str]) -> dict[str, str]:
        return os.environ | {
            "DATA_DIR": str(self.layout.data_dir),
            "DATABASE_URL": self.layout.database_url,
            "REDIS_URL": self.layout.redis_url,
            "REDIS_PREFIX": PREFIX,
            **settings,
        }

    def manage(self, *arguments: str) -> str:
        """Run a management command and return its standard output."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self._environment({}),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    def say(self, *arguments: str, **settings: str) -> str:
        """Run a management command, whatever comes of it, and return all that it prints."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self._environment(settings),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ).stdout

    def mint(self, name: str) -> str:
        """Return a new API key."""
        return self.manage("create_api_key", name).strip()

    # Servers.

    def start_postgres(self) -> Server:
        """Start the database, with whatever data it had."""
        server = self._start(
            "postgres",
            postgres.command(self.layout),
            folder=Path("/"),
            stop_signal=signal.SIGINT,
            **postgres.identity(postgres.server_user()),
        )
        wait_for_postgres(self.layout.database_url, PATIENCE_S)
        return server

    def restart_postgres(self) -> None:
        """Shut the database down, which ends every connection, and start it again."""
        self.postgres.stop()
        self.postgres = self.start_postgres()

    def start_valkey(self) -> Server:
        """Start the Redis-protocol server, with whatever data it had."""
        server = self._start("valkey", valkey.command(self.layout))
        wait_for_redis(self.layout.redis_url, PATIENCE_S)
        return server

    def restart_valkey(self, *, keep_data: bool = True) -> None:
        """Kill it and start it again."""
        self.valkey.kill()
        if not keep_data:
            shutil.rmtree(self.layout.valkey)
            valkey.prepare(self.layout)
        self.valkey = self.start_valkey()

    # Tandem's own processes.

    def start_gateway(self, **settings: str) -> Gateway:
        """Start a gateway and wait until it answers."""
        return self.start_gateway_on(free_port(), **settings)

    def start_gateway_on(self, port: int, **settings: str) -> Gateway:
        """Start a gateway on a port that was chosen before, and wait until it answers."""
        command = [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port)]
        command += ["--access-log", os.devnull, "gateway.asgi:application"]
        server = self._start("gateway", command, env=self._environment(settings))
        gateway = Gateway(server, port)
        eventually(gateway.answers, f"the gateway answers (see {server.log})")
        return gateway

    def start_worker(
        self,
        *models: str,
        until: EngineState = EngineState.READY,
        patience_s: float = PATIENCE_S,
        **settings: str,
    ) -> Server:
        """Start an engine worker and wait until its engines are in the given state."""
        command = [sys.executable, "-m", "celery", "-A", "jobs", "worker", "-P", "threads"]
        queues = ",".join(f"engine.{model}" for model in models)
        command += ["-c", "1", "-Q", queues, "-n", f"engine-{self._started}@%h"]
        command += ["--without-gossip", "--without-mingle"]
        settings["ENGINE_MODELS"] = ",".join(models)
        worker = self._start("worker", command, env=self._environment(settings))

        def has_come() -> bool:
            assert worker.alive, f"the worker ended (see {worker.log})"
            there = {
                report.model
                for report in self.reports()
                if report.pid == worker.process.pid and report.state is until
            }
            return there.issuperset(models)

        eventually(has_come, f"{', '.join(models)} are {until} (see {worker.log})", patience_s)
        return worker

    def start_clerk(self, **settings: str) -> Server:
        """Start a worker that records what became of requests."""
        command = [sys.executable, "-m", "celery", "-A", "jobs", "worker", "-P", "threads"]
        command += ["-c", "1", "-Q", "default", "-n", f"clerk-{self._started}@%h"]
        command += ["--without-gossip", "--without-mingle"]
        return self._start("clerk", command, env=self._environment(settings))

    def start_beat(self) -> Server:
        """Start what wakes the clerk for its regular work."""
        command = [sys.executable, "-m", "celery", "-A", "jobs", "beat", "--pidfile", ""]
        command += ["--schedule", str(self.layout.run / "beat-schedule")]
        return self._start("beat", command, env=self._environment({}))

    def add_model(self, model: str, **fields: Any) -> str:
        """Put a model into the catalogue, a scripted one unless told otherwise."""
        named = {"backend": "scripted", "context_tokens": 100_000, "capacity": 64}
        insert_model(self.layout.database_url, model, **(named | fields))
        self.redis.publish(self.keys.nudges, "catalogue")
        return model

    def add_mcp_server(self, name: str, *models: str, **fields: Any) -> None:
        """Put an MCP server into the catalogue, and give its tools to these models."""
        insert_mcp_server(self.layout.database_url, name, *models, **fields)
        self.redis.publish(self.keys.nudges, "catalogue")

    def script_model(self, model: str, **script: Any) -> None:
        """Set the script of engines that are started from now on."""
        with psycopg.connect(self.layout.database_url) as connection:
            connection.execute(
                "UPDATE inference_model SET engine_options = %s WHERE id = %s",
                [Jsonb(script), model],
            )

    # What it looks like inside.

    def reports(self) -> list[EngineReport]:
        """The engines' heartbeats."""
        ids = [raw.decode() for raw in cast("set[bytes]", self.redis.smembers(self.keys.engines))]
        values = [self.redis.get(self.keys.engine(engine_id)) for engine_id in ids]
        return [decode_report(cast("bytes", value)) for value in values if value]

    def in_flight(self, model: str) -> int:
        """Requests that the model's engines are running, by their own count."""
        return sum(report.in_flight for report in self.reports() if report.model == model)

    def waiting(self, model: str) -> int:
        """Requests in the model's queue."""
        return self.redis.xlen(self.keys.queue(model, Lane.REALTIME))

    def wait_for_in_flight(self, model: str, count: int) -> None:
        """Wait until the model's engines run exactly so many requests."""
        eventually(
            lambda: self.in_flight(model) == count,
            f"{count} requests of {model} are running",
        )

    def wait_for_waiting(self, model: str, count: int) -> None:
        """Wait until exactly so many requests are in the model's queue."""
        eventually(lambda: self.waiting(model) == count, f"{count} requests wait for {model}")


@contextmanager
def ending(server: Server) -> Iterator[Server]:
    """End a server that only one test uses, so that the next ones have the machine."""
    try:
        yield server
    finally:
        server.kill()
