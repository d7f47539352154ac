"""What a killed worker leaves behind is ended."""

from __future__ import annotations

import subprocess
import sys

import psutil

from tests.conftest import Eventually

# Stands for a worker: guards itself, starts an "engine", says its pid and waits to be killed.
_WORKER = """
import subprocess, sys, time
from inference.engine.guardian import start_guardian
start_guardian()
engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                          start_new_session=True)
print(engine.pid, flush=True)
time.sleep(600)
"""


async def test_it_ends_the_engine_of_a_worker_that_was_killed(eventually: Eventually) -> None:
    worker = _start_worker()
    assert worker.stdout is not None
    engine = psutil.Process(int(worker.stdout.readline()))
    helpers = psutil.Process(worker.pid).children(recursive=True)
    assert engine.is_running()

    worker.kill()
    worker.wait()
    worker.stdout.close()

    await eventually(lambda: not any(_runs(process) for process in [engine, *helpers]))


def _start_worker() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _WORKER], stdout=subprocess.PIPE, text=True)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
