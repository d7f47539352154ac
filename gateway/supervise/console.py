"""What the operator sees: how far the start is, and how to call what is running."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TextIO

_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Lines on a stream; on a terminal the last one moves while something is waited for."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._moves = stream.isatty()
        self._spinner = cycle("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
        self._waiting_for = ""
        self._since = 0.0

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._write(f"{_CLEAR_LINE if self._moves else ''}{text}\n")
        self._waiting_for = ""

    def wait_for(self, text: str) -> None:
        """Show what is waited for; called again and again while it lasts."""
        if text != self._waiting_for:
            self._waiting_for, self._since = text, time.monotonic()
            if not self._moves:
                self._write(f"{text} ...\n")
        if self._moves:
            seconds = time.monotonic() - self._since
            self._write(f"{_CLEAR_LINE}{next(self._spinner)} {text} ({seconds:.0f} s)")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A start that succeeded."""

    address: str
    model: str | None
    """A model that is ready, if any is enabled."""
    manage: str
    """How `manage.py` is called here."""
    logs: Path
    key: str | None
    """The key that was minted now, if one was."""
    operator: str
    password: str | None
    """The operator's new password, if the account was made now."""


def banner(running: Running) -> str:
    """Return the lines that say how to use what is running."""
    key = running.key or "$TANDEM_API_KEY"
    if running.key:
        key_line = f"{key}   (not shown again)"
    else:
        key_line = f"minted earlier; for another: {running.manage} create_api_key NAME"
    admin = f"{running.address}/admin/"
    if running.password:
        admin += f"   user {running.operator}, password {running.password} (not shown again)"
    return "\n".join(
        [
            "",
            f"Tandem is ready at {running.address}",
            "",
            f"  Key    {key_line}",
            f"  Admin  {admin}",
            f"  Logs   {running.logs}",
            "",
            _example(running.address, key, running.model),
            "",
            "Ctrl-C to stop.",
        ]
    )


def _example(address: str, key: str, model: str | None) -> str:
    """Return a request that works as pasted into a shell."""
    if model is None:
        return "No model is enabled: enable one in the admin and start again."
    request = {
        "model": model,
        "max_tokens": 32,
        "temperature": 0,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
    }
    return "\n".join(
        [
            f"curl {address}/v1/messages \\",
            f'  -H "x-api-key: {key}" -H "content-type: application/json" \\',
            f"  -d {shlex.quote(json.dumps(request))}",
        ]
    )
