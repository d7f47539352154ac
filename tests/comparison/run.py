"""Asks Tandem and vLLM's own server the same requests, and writes what each does into the page.

Both serve the default model with the same engine arguments.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import django
import httpx

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
django.setup()

from gateway.config import load  # noqa: E402
from inference.transport.frames import EngineState  # noqa: E402
from tests.acceptance.stack import ROOT, Stack  # noqa: E402
from tests.benchmarks import arms  # noqa: E402
from tests.benchmarks.rounds import Arm  # noqa: E402
from tests.comparison.checks import CHECKS, outcome  # noqa: E402
from tests.comparison.server import Server  # noqa: E402

PAGE = ROOT / "docs" / "api" / "compatibility.md"

_TABLE = re.compile(r"(?<=<!-- make compare -->\n).*(?=<!-- /make compare -->)", re.DOTALL)
_PATIENCE_S = 120.0
# What vLLM can be told to do, it is told.
_FLAGS = ("--enable-prompt-tokens-details",)


def main() -> None:
    """Compare, and write the table."""
    # After a failure it stays: the logs in it say why.
    folder = Path(tempfile.mkdtemp(prefix="tandem-compare-"))
    models = load().DATA_DIR / "models"
    models.mkdir(parents=True, exist_ok=True)
    (folder / "models").symlink_to(models)
    with Stack(folder) as stack:
        table = _compare(stack)
    shutil.rmtree(folder)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_TABLE.sub(lambda _: table, page), encoding="utf-8")
    sys.stdout.write(table)


def _compare(stack: Stack) -> str:
    stack.manage("fetch_model")
    arguments = arms.vllm_arguments(stack)
    with arms.vllm(stack, arguments, "--api-key", stack.key, *_FLAGS) as theirs:
        ours = arms.tandem(stack, arguments.model, until=EngineState.LOADING)
        with _http(ours, stack.key) as mine, _http(theirs, stack.key) as other:
            version = other.get("/version").json()["version"]
            servers = [Server(mine, ours.model), Server(other, theirs.model)]
            rows = [
                [check.statement, *(outcome(check, server) for server in servers)]
                for check in CHECKS
            ]
    header = ["", "Tandem", f"vLLM {version}"]
    return "".join(f"| {' | '.join(row)} |\n" for row in [header, ["---"] * 3, *rows])


def _http(arm: Arm, key: str) -> httpx.Client:
    return httpx.Client(
        base_url=f"http://127.0.0.1:{arm.port}",
        headers={"authorization": f"Bearer {key}"},
        timeout=_PATIENCE_S,
        trust_env=False,
    )


if __name__ == "__main__":
    main()
