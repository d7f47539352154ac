"""What one `serve` alone may hold: its data directory and its port."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.supervise.layout import Layout


class TakenError(Exception):
    """Somebody else holds it; the message says what and, where that is known, who."""


@contextmanager
def hold_data_dir(layout: Layout) -> Iterator[None]:
    """Hold the data directory. Raises `TakenError` naming the process that has it.

    The kernel lets go of it when this process ends, however that happens.
    """
    with (layout.run / "lock").open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise TakenError(
                f"data directory {layout.data_dir} is in use by pid {holder}"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


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
