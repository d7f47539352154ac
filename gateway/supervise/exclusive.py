"""What one `serve` alone may hold: its data directory and its port."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import psutil

from gateway.supervise.layout import Layout

_POLL_S = 0.1


class TakenError(Exception):
    """Somebody else holds it; the message says what and, where that is known, who."""


@contextmanager
def hold_data_dir(layout: Layout, patience_s: float = 20) -> Iterator[int]:
    """Hold the data directory as long as the descriptor that is returned is open somewhere.

    Raises `TakenError` naming the process that has it. A run whose `serve` was killed is given
    `patience_s` to end: longer than a shutdown takes.
    """
    with (layout.run / "lock").open("a+", encoding="ascii") as lock:
        end = time.monotonic() + patience_s
        while not _locks(lock):
            lock.seek(0)
            holder = lock.read()
            if _is_alive(holder) or time.monotonic() > end:
                raise TakenError(f"data directory {layout.data_dir} is in use by pid {holder}")
            time.sleep(_POLL_S)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield lock.fileno()


def _locks(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_alive(holder: str) -> bool:
    # Empty for the instant between locking and writing.
    return not holder.isdecimal() or psutil.pid_exists(int(holder))


def check_port(host: str, port: int) -> None:
    """Raise `TakenError` if nobody can listen there now."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As the listening socket will: connections of an earlier run may linger.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except socket.gaierror:
        raise TakenError(f"HOST {host} is not an IPv4 address or the name of one") from None
    except PermissionError:
        raise TakenError(f"port {port} is for root only; set PORT") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise TakenError(f"port {port} is taken; set PORT") from None
        raise TakenError(f"cannot listen on {host}: {error.strerror}; set HOST") from None
