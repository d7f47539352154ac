"""Clients that run outside this environment: in another language, or beside other versions."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pytest

from gateway.supervise.processes import end_with_parent
from tests.acceptance.stack import PATIENCE_S

_INSTALL_PATIENCE_S = 180


@dataclass(frozen=True, kw_only=True)
class Program:
    """A client of one gateway that plays scenarios, one after another in the same process.

    The command is given a scenario a line, a JSON array of its name and of its arguments. To each
    it answers with one line, a JSON object: the scenario's `value`, or the `error` that the client
    library raised.
    """

    command: tuple[str, ...]
    folder: Path
    url: str
    key: str
    running: dict[tuple[str, ...], Running] = field(default_factory=dict)
    """The processes of this one and of those that were made of it."""

    def at(self, url: str) -> Self:
        """Return the same client of another gateway."""
        return replace(self, url=url)

    def run(self, scenario: str, *arguments: Any) -> Any:
        """Return what a scenario returned."""
        outcome = self._outcome(scenario, arguments)
        assert "value" in outcome, outcome
        return outcome["value"]

    def fail(self, scenario: str, *arguments: Any, key: str | None = None) -> dict[str, Any]:
        """Return the library's error that a scenario ended with: `name`, `status`, `type`, ..."""
        client = self if key is None else replace(self, key=key)
        outcome = client._outcome(scenario, arguments)
        assert "error" in outcome, outcome
        error: dict[str, Any] = outcome["error"]
        return error

    def close(self) -> None:
        """End its processes, and those of whatever was made of it."""
        while self.running:
            self.running.popitem()[1].end()

    def _outcome(self, scenario: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
        place = (*self.command, self.url, self.key)
        if place not in self.running:
            self.running[place] = self._start()
        # What fails has ended, and the next scenario gets a new process.
        running = self.running.pop(place)
        outcome: dict[str, Any] = json.loads(running.ask(json.dumps([scenario, arguments])))
        self.running[place] = running
        return outcome

    def _start(self) -> Running:
        # No other variable: the libraries would heed many.
        environment = {
            "PATH": os.environ["PATH"],
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": self.key,
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": self.key,
        }
        return Running(self.command, self.folder, environment)


class Running:
    """A process that answers each line with a line."""

    def __init__(self, command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self._complaints = folder / "stderr.log"
        with self._complaints.open("ab") as complaints:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                encoding="utf-8",
                preexec_fn=end_with_parent,
            )

    def ask(self, line: str) -> str:
        """Return the answer. If there is none, fail with what the process complained of."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        patience = threading.Timer(PATIENCE_S, process.kill)
        patience.start()
        try:
            with suppress(BrokenPipeError):
                print(line, file=process.stdin, flush=True)
            answer = process.stdout.readline()
        finally:
            patience.cancel()
        if not answer:
            self.end()
            pytest.fail(f"no answer to {line}:\n{self._complaints.read_text('utf-8')}")
        return answer

    def end(self) -> None:
        """End the process."""
        with suppress(BrokenPipeError), self._process as process:
            process.kill()


def install(what: str, folder: Path, *commands: Sequence[str]) -> None:
    """Run the commands in the folder. Where they cannot be run, skip the test, but not in CI."""
    try:
        for command in commands:
            subprocess.run(command, cwd=folder, check=True, timeout=_INSTALL_PATIENCE_S)
    except (OSError, subprocess.SubprocessError) as error:
        if "CI" in os.environ:
            raise
        pytest.skip(f"{what} cannot be installed: {error}")
