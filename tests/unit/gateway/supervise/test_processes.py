"""No process is left behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.conftest import Eventually

# Each script runs in a process of its own: whom it adopts and ends must not be the tests'.
PARENT_OF_ONE = """
import os, subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", "import signal; signal.pause()"],
    stdout=subprocess.DEVNULL, preexec_fn={preexec},
)
print(child.pid, flush=True)
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def run_script(script: str, started: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    started.append(process)
    return process


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def test_a_child_ends_when_its_parent_is_killed(
    started: list[subprocess.Popen[str]], eventually: Eventually
) -> None:
    script = "from gateway.supervise.processes import end_with_parent\n"
    script += PARENT_OF_ONE.format(preexec="end_with_parent") + "sys.stdin.read()"
    parent = run_script(script, started)
    child = int(first_line(parent))
    parent.kill()
    await eventually(lambda: not psutil.pid_exists(child))


def test_orphans_are_adopted_and_killed_and_the_kept_child_is_not(
    started: list[subprocess.Popen[str]],
) -> None:
    script = f"""
import subprocess, sys, psutil
from gateway.supervise.processes import adopt_orphans, end_orphans
adopt_orphans()
kept = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
middle = subprocess.run(
    [sys.executable, "-c", {PARENT_OF_ONE.format(preexec="None")!r}],
    stdout=subprocess.PIPE, text=True)
orphan = int(middle.stdout)
print(psutil.Process(orphan).ppid() == psutil.Process().pid)
end_orphans(keep=kept.pid)
print(psutil.pid_exists(orphan), kept.poll() is None)
kept.kill()
kept.wait()
"""
    output, _ = run_script(script, started).communicate()
    assert output.split() == ["True", "False", "True"]


def test_descendants_that_ignore_the_signal_are_killed(
    started: list[subprocess.Popen[str]],
) -> None:
    script = """
import signal, subprocess, sys, psutil
from gateway.supervise.processes import end_descendants
stubborn = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
child = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE)
child.stdout.readline()
end_descendants(grace_s=0.1)
print(psutil.Process().children())
"""
    output, _ = run_script(script, started).communicate()
    assert output.strip() == "[]"


async def test_a_tethered_command_ends_when_its_parent_is_killed(
    started: list[subprocess.Popen[str]], eventually: Eventually
) -> None:
    script = """
import subprocess, sys
from gateway.supervise.processes import tethered
sleeper = "import signal; print(flush=True); signal.pause()"
child = subprocess.Popen(
    tethered([sys.executable, "-c", sleeper], "TERM"), stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""
    parent = run_script(script, started)
    child = int(first_line(parent))
    parent.kill()
    await eventually(lambda: not psutil.pid_exists(child))
