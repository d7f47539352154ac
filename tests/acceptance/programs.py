"""Clients that run outside this environment: in another language, or beside other versions."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest

from tests.acceptance.stack import PATIENCE_S

_INSTALL_PATIENCE_S = 180


@dataclass(frozen=True, kw_only=True)
class Program:
    """A client of one gateway that plays scenarios, each in a process of its own.

    The command is given a scenario's name and its arguments as a JSON array. It prints one JSON
    object: the scenario's `value`, or the `error` that the client library raised.
    """

    command: tuple[str, ...]
    folder: Path
    url: str
    key: str

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

    def _outcome(self, scenario: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
        # No other variable: the libraries would heed many.
        environment = {
            "PATH": os.environ["PATH"],
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": self.key,
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": self.key,
        }
        ended = subprocess.run(
            [*self.command, scenario, json.dumps(arguments)],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ended.returncode == 0, ended.stderr
        outcome: dict[str, Any] = json.loads(ended.stdout)
        return outcome


def install(what: str, folder: Path, *commands: Sequence[str]) -> None:
    """Run the commands in the folder. Where they cannot be run, skip the test, but not in CI."""
    try:
        for command in commands:
            subprocess.run(command, cwd=folder, check=True, timeout=_INSTALL_PATIENCE_S)
    except (OSError, subprocess.SubprocessError) as error:
        if "CI" in os.environ:
            raise
        pytest.skip(f"{what} cannot be installed: {error}")
