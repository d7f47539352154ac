"""The servers under test: a Tandem of real processes, and what stands beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import msgspec

from inference.transport.frames import EngineState
from tests.acceptance.stack import PREFIX, Server, Stack, eventually, free_port
from tests.benchmarks.load import ROOT
from tests.benchmarks.rounds import Arm

# Loading a model beside another one, on a few cores.
_START_PATIENCE_S = 300.0


def tandem(stack: Stack, model: str, *, until: EngineState = EngineState.READY) -> Arm:
    """Start one gateway and one engine worker for a model of the catalogue.

    A model that takes long is best waited for until it is LOADING: the rest is done here, with
    more patience than the stack has.
    """
    gateway = stack.start_gateway()
    worker = stack.start_worker(model, until=until)

    def is_ready() -> bool:
        assert worker.alive, f"the worker ended (see {worker.log})"
        return gateway.model_state(model).get("state") == EngineState.READY

    eventually(is_ready, f"{model} is ready (see {worker.log})", _START_PATIENCE_S)
    return Arm(
        name="Tandem",
        port=gateway.port,
        model=model,
        headers={"x-api-key": stack.key},
        processes={
            "gateway": gateway.server.process.pid,
            "worker": worker.process.pid,
            "Valkey": stack.valkey.process.pid,
        },
    )


@contextmanager
def gateway(stack: Stack, application: str) -> Iterator[tuple[int, int]]:
    """Run an application of a gateway's under Daphne; yield its port and its process."""
    port = free_port()
    command = [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port)]
    command += ["--access-log", os.devnull, application]
    log = stack.layout.logs / f"{application.partition(':')[0]}.log"
    variables = environment(stack) | {"REDIS_PREFIX": PREFIX}
    with serving(command, log, variables, port, "/healthz") as pid:
        yield port, pid


@contextmanager
def direct(stack: Stack) -> Iterator[Arm]:
    """Run the scripted engine behind the least application, on the same server as Tandem's."""
    port = free_port()
    command = [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port)]
    command += ["--access-log", os.devnull, "tests.benchmarks.direct:application"]
    with serving(command, stack.layout.logs / "direct.log", environment(stack), port) as pid:
        yield Arm(name="direct", port=port, model="direct", processes={"server": pid})


class VllmArguments(msgspec.Struct):
    """How vLLM's own server is started for a model of the catalogue."""

    model: str
    flags: list[str]
    environment: dict[str, str]


def vllm_arguments(stack: Stack) -> VllmArguments:
    """Return what makes vLLM's own server run the engine that Tandem's worker runs."""
    asked = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.vllm_arguments"],
        cwd=ROOT,
        env=environment(stack),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(asked.stdout, type=VllmArguments)


@contextmanager
def vllm(stack: Stack, arguments: VllmArguments, *more: str) -> Iterator[Arm]:
    """Run vLLM's own API server, with `more` flags beyond those of Tandem's engine."""
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--host", "127.0.0.1", "--port", str(port), *arguments.flags, *more]
    log = stack.layout.logs / "vllm.log"
    with serving(command, log, arguments.environment | os.environ, port) as pid:
        yield Arm(name="vLLM", port=port, model=arguments.model, processes={"server": pid})


def environment(stack: Stack) -> dict[str, str]:
    """Return the environment of a process that reads the stack's settings."""
    return os.environ | {
        "DATA_DIR": str(stack.layout.data_dir),
        "DATABASE_URL": stack.layout.database_url,
        "REDIS_URL": stack.layout.redis_url,
    }


@contextmanager
def serving(
    command: list[str], log: Path, variables: dict[str, str], port: int, path: str = "/health"
) -> Iterator[int]:
    """Run a server until the end; yield its process once it answers a GET of `path`."""
    server = Server(command, log, env=variables)

    def answers() -> bool:
        assert server.alive, f"the server ended (see {log})"
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):
                return True
        except (URLError, TimeoutError):
            return False

    try:
        eventually(answers, f"the server answers (see {log})", _START_PATIENCE_S)
        yield server.process.pid
    finally:
        server.stop()
