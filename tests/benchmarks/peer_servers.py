"""Two gateways of others, each in a folder of its own under the data directory.

They are installed once, by their own package managers, and are no part of Tandem's install. Each
runs one process, in front of an upstream that speaks Chat.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gateway.config import load
from tests.acceptance.stack import Stack, free_port
from tests.benchmarks.arms import serving
from tests.benchmarks.load import CHAT
from tests.benchmarks.rounds import Arm

# The newest whose proxy's requirements could all be had.
LITELLM = "1.108.7"
PORTKEY = "1.15.2"
# With a newer one this Portkey fails at every stream: it adds headers where it no longer may
# (Portkey-AI/gateway#1389).
_NODE_SERVER = "1.13.7"
_KEY = "sk-benchmark"
_MODEL = "scripted"


class NotInstalledError(Exception):
    """A peer could not be installed; the message says which, and why."""


@contextmanager
def litellm(stack: Stack, upstream: Arm) -> Iterator[Arm]:
    """Run LiteLLM's proxy, which knows one key and has no database.

    Raises `NotInstalledError`.
    """
    folder = _folder(f"litellm-{LITELLM}")
    python = folder / "bin" / "python"
    _install(
        folder,
        [sys.executable, "-m", "venv", "."],
        [str(python), "-m", "pip", "install", "--quiet", f"litellm[proxy]=={LITELLM}"],
    )
    parameters = {
        "model": f"openai/{_MODEL}",
        "api_base": f"http://127.0.0.1:{upstream.port}/v1",
        "api_key": "upstream",
    }
    config = {
        "model_list": [{"model_name": _MODEL, "litellm_params": parameters}],
        "general_settings": {"master_key": _KEY},
    }
    # JSON is YAML too.
    config_path = stack.layout.run / "litellm.yaml"
    config_path.write_bytes(msgspec.json.encode(config))
    port = free_port()
    command = [str(folder / "bin" / "litellm"), "--config", str(config_path), "--num_workers", "1"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    log = stack.layout.logs / "litellm.log"
    with serving(command, log, _litellm_variables(), port, "/health/liveliness") as pid:
        yield _arm("LiteLLM", port, pid, upstream)


@contextmanager
def portkey(stack: Stack, upstream: Arm) -> Iterator[Arm]:
    """Run Portkey's gateway, which has no keys: it hands the caller's on.

    Raises `NotInstalledError`.
    """
    folder = _folder(f"portkey-{PORTKEY}")
    package = {
        "private": True,
        "dependencies": {"@portkey-ai/gateway": PORTKEY},
        "overrides": {"@hono/node-server": _NODE_SERVER},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_bytes(msgspec.json.encode(package))
    _install(folder, ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"])
    port = free_port()
    script = folder / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    command = ["node", str(script), "--headless", f"--port={port}"]
    log = stack.layout.logs / "portkey.log"
    variables = os.environ | {"NODE_ENV": "production"}
    with serving(command, log, variables, port, "/") as pid:
        yield _arm(
            "Portkey",
            port,
            pid,
            upstream,
            **{
                "x-portkey-provider": "openai",
                "x-portkey-custom-host": f"http://127.0.0.1:{upstream.port}/v1",
            },
        )


def _arm(name: str, port: int, pid: int, upstream: Arm, **headers: str) -> Arm:
    return Arm(
        name=name,
        port=port,
        model=_MODEL,
        headers={"authorization": f"Bearer {_KEY}", **headers},
        processes={"proxy": pid, "upstream": upstream.processes["server"]},
        path=CHAT,
    )


def _litellm_variables() -> dict[str, str]:
    """Return an environment without Tandem's own servers, which it would take for its own."""
    kept = {name: value for name, value in os.environ.items() if name not in _TANDEMS}
    return kept | {
        # It asks for prices on the internet otherwise, and logs each request.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
    }


_TANDEMS = ("DATABASE_URL", "REDIS_URL")


def _folder(name: str) -> Path:
    return load().DATA_DIR / "peers" / name


def _install(folder: Path, *commands: list[str]) -> None:
    """Run the commands in the folder, unless they all went well before."""
    mark = folder / "installed"
    if mark.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Installing: {folder.name}", file=sys.stderr, flush=True)
    for command in commands:
        if shutil.which(command[0]) is None:
            raise NotInstalledError(f"{folder.name}: there is no {command[0]} here")
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            said = done.stdout.strip().splitlines() or ["nothing"]
            raise NotInstalledError(f"{folder.name}: {Path(command[0]).name} said: {said[-1]}")
    mark.touch()
