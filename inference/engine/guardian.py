"""Ends an engine's processes when their worker dies without a word.

vLLM's processes do not notice the death of the process that started them: a worker that is killed
would leave its engine behind, gigabytes of memory and all. The guardian is a small process of its
own that waits for the worker's end of a pipe to close and then ends whatever the worker left.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from functools import cache

import psutil

# Children inherit the environment, and with it whose they are.
_MARK = "TANDEM_ENGINE_WORKER"


def start_guardian() -> None:
    """Guard every process that this one starts from now on."""
    own = _own_mark()
    # Only this process holds the writing end, and only its death closes it.
    reading, _writing = os.pipe()
    subprocess.Popen([sys.executable, __file__, own], stdin=reading, start_new_session=True)
    os.close(reading)
    # After the guardian is started: it must not count itself among the engine's processes.
    os.environ[_MARK] = own


def mark() -> dict[str, str]:
    """Return the variable that guards a process which does not inherit this one's environment."""
    return {_MARK: _own_mark()}


@cache
def _own_mark() -> str:
    return f"{os.getpid()}-{uuid.uuid4()}"


def _end_all(mark: str) -> None:
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark:
                process.kill()
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue


if __name__ == "__main__":
    sys.stdin.buffer.read()
    _end_all(sys.argv[1])
