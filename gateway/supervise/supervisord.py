"""The process manager: supervisord, its configuration and the calls that are made to it."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from supervisor.xmlrpc import SupervisorTransport

from gateway.supervise.layout import Layout
from gateway.supervise.processes import end_with_parent, tethered
from gateway.supervise.programs import Program

_POLL_S = 0.1
_ENDED = {"STOPPED", "EXITED", "FATAL"}
# What a call can raise while supervisord is dying or gone.
_UNREACHABLE = (OSError, http.client.HTTPException, xmlrpc.client.Error)


class SupervisordError(Exception):
    """Supervisord did not start, or is gone."""


class Supervisord:
    """A running supervisord that keeps programs running. It ends when this process ends."""

    def __init__(
        self, layout: Layout, environment: dict[str, str], inherit: Iterable[int] = ()
    ) -> None:
        self._layout = layout
        self._socket = layout.sockets / "supervisor.sock"
        self._settings = layout.run / "supervisord.conf"
        self._write([])
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "supervisor.supervisord"),
                *("--nodaemon", "--configuration", str(self._settings)),
            ],
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            pass_fds=tuple(inherit),
            # A terminal's Ctrl-C is for this process, which stops the others in order.
            start_new_session=True,
            preexec_fn=end_with_parent,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def wait_until_up(self, timeout_s: float) -> None:
        """Return when it answers. Raises `SupervisordError`."""
        end = time.monotonic() + timeout_s
        while self.is_alive and time.monotonic() < end:
            try:
                self._call("getState")
            except _UNREACHABLE:
                time.sleep(_POLL_S)
            else:
                return
        raise SupervisordError("the process manager did not start")

    def run(self, programs: Iterable[Program]) -> None:
        """Make these the programs that are kept running; those that run already run on."""
        self._write(programs)
        try:
            added, _, _ = self._call("reloadConfig")[0]
            for name in added:
                self._call("addProcessGroup", name)
        except _UNREACHABLE as error:
            raise SupervisordError(f"the process manager failed: {error}") from error

    def given_up(self) -> list[str]:
        """Return the programs that ended at once every time they were started."""
        return [name for name, state in self._states() if state == "FATAL"]

    def revive(self) -> None:
        """Try again to start what it has given up."""
        for info in self._infos():
            if info["statename"] == "FATAL":
                with suppress(*_UNREACHABLE):
                    self._call("startProcess", f"{info['group']}:{info['name']}", False)

    def stop(self, chosen: Callable[[str], bool], timeout_s: float) -> None:
        """Stop the programs whose name is chosen, side by side, and return when they are down."""
        for group in {info["group"] for info in self._infos() if chosen(info["group"])}:
            with suppress(*_UNREACHABLE):
                self._call("stopProcessGroup", group, False)
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if all(state in _ENDED for name, state in self._states() if chosen(name)):
                return
            time.sleep(_POLL_S)

    def shut_down(self, timeout_s: float) -> None:
        """End supervisord itself, and with it what still runs."""
        with suppress(*_UNREACHABLE):
            self._call("shutdown")
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _call(self, method: str, *arguments: Any) -> Any:
        """Call supervisord, each time on a new connection: a broken one would stay broken."""
        transport = SupervisorTransport(serverurl=f"unix://{self._socket}")
        with xmlrpc.client.ServerProxy("http://localhost", transport=transport) as server:
            return getattr(server.supervisor, method)(*arguments)

    def _infos(self) -> list[dict[str, Any]]:
        """Return what it knows of each process: nothing while it cannot be reached."""
        try:
            return list(self._call("getAllProcessInfo"))
        except _UNREACHABLE:
            return []

    def _states(self) -> list[tuple[str, str]]:
        return [(info["group"], info["statename"]) for info in self._infos()]

    def _write(self, programs: Iterable[Program]) -> None:
        self._settings.touch(mode=0o600)
        self._settings.write_text(render(self._layout, self._socket, programs), encoding="utf-8")


def render(layout: Layout, socket: Path, programs: Iterable[Program]) -> str:
    """Return supervisord's configuration. It holds no secret: those travel in the environment.

    Raises `SupervisordError` for a path that its format cannot hold.
    """
    # Log files' names are expanded twice, and comments begin in the middle of a line.
    if re.search(r"%|\s[;#]|[\r\n]", str(layout.data_dir)):
        raise SupervisordError(f"DATA_DIR must be without %, ' ;' and ' #': {layout.data_dir}")
    head: dict[str, dict[str, str]] = {
        "supervisord": {
            "logfile": _literal(layout.logs / "supervisord.log"),
            "pidfile": _literal(layout.run / "supervisord.pid"),
            "childlogdir": _literal(layout.logs),
            "silent": "true",
        },
        "unix_http_server": {"file": _literal(socket), "chmod": "0700"},
        "rpcinterface:supervisor": {
            "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
        },
    }
    if os.geteuid() == 0:
        head["supervisord"]["user"] = "root"
    return "\n".join(
        _section(name, values)
        for name, values in [*head.items(), *(_program(layout, one) for one in programs)]
    )


def _program(layout: Layout, program: Program) -> tuple[str, dict[str, str]]:
    """Return the section that keeps one program running."""
    number = "-%(process_num)d" if program.copies > 1 else ""
    values = {
        "command": _literal(shlex.join(tethered(program.command, program.stop_signal))),
        "directory": _literal(program.folder),
        "process_name": f"%(program_name)s{number}",
        "numprocs": str(program.copies),
        "autorestart": "true",
        "startsecs": str(program.start_s),
        "startretries": str(program.retries),
        "stopsignal": program.stop_signal,
        "stopwaitsecs": str(program.stop_s),
        # What it started goes with it where it had to be killed.
        "killasgroup": "true",
        "redirect_stderr": "true",
        "stdout_logfile": f"{_literal(layout.logs / program.name)}{number}.log",
        "stdout_logfile_maxbytes": "10MB",
        "stdout_logfile_backups": "3",
    }
    if program.environment:
        values["environment"] = ",".join(
            f'{name}="{_literal(value)}"' for name, value in program.environment.items()
        )
    if program.user is not None:
        values["user"] = program.user
    if program.listen:
        values["socket"] = f"tcp://{program.listen}"
    return f"{'fcgi-program' if program.listen else 'program'}:{program.name}", values


def _section(name: str, values: dict[str, str]) -> str:
    return "\n".join([f"[{name}]", *(f"{key}={value}" for key, value in values.items()), ""])


def _literal(value: str | Path) -> str:
    """Return text that supervisord's parser takes for what it is."""
    return str(value).replace("%", "%%")
