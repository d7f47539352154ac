"""Child processes: none outlives the process that started it, whichever of them is killed."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterable
from contextlib import suppress

import psutil

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none gets lost."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when its parent dies. Runs after a fork."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def tethered(command: list[str], number: str) -> list[str]:
    """Return a command that the kernel sends this signal (TERM, INT) when its parent dies."""
    return ["setpriv", "--pdeathsig", number, *command]


def end_descendants(grace_s: float) -> None:
    """End every process below this one: SIGTERM, and SIGKILL after the grace."""
    _end(psutil.Process().children(recursive=True), grace_s)


def end_orphans(keep: int) -> None:
    """Kill adopted processes: their owner is dead and has a successor that they are in the way of.

    `keep` is the process id of the one child that is not an orphan.
    """
    for child in psutil.Process().children():
        if child.pid == keep:
            continue
        try:
            below = child.children(recursive=True)
        except psutil.NoSuchProcess:
            below = []
        _end([child, *below], grace_s=0)


def _end(processes: list[psutil.Process], grace_s: float) -> None:
    if grace_s > 0:
        _signal(processes, signal.SIGTERM)
        _, processes = psutil.wait_procs(processes, timeout=grace_s)
    _signal(processes, signal.SIGKILL)
    psutil.wait_procs(processes, timeout=2)


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")
