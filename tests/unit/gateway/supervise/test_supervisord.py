"""The process manager: what it is told, and that it does it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from gateway.config import Config
from gateway.supervise import postgres, valkey
from gateway.supervise.embedded import wait_for_postgres, wait_for_redis
from gateway.supervise.layout import Layout
from gateway.supervise.programs import Program, embedded_servers
from gateway.supervise.supervisord import Supervisord, SupervisordError, render
from tests.conftest import Eventually

SLEEP = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "my data")
    layout.create()
    return layout


@pytest.fixture
def supervisord(layout: Layout) -> Iterator[Supervisord]:
    with running(layout) as supervisord:
        yield supervisord


@contextmanager
def running(layout: Layout) -> Iterator[Supervisord]:
    supervisord = Supervisord(layout, dict(os.environ))
    try:
        supervisord.wait_until_up(20)
        yield supervisord
    finally:
        supervisord.stop(lambda name: True, 10)
        supervisord.shut_down(5)


def children(supervisord: Supervisord) -> list[psutil.Process]:
    return psutil.Process(supervisord.pid).children()


def the_child(supervisord: Supervisord, command: str) -> Callable[[], int | None]:
    """Return a function that finds the process id of the child with this command."""

    def find() -> int | None:
        for child in children(supervisord):
            try:
                if any(command in part for part in child.cmdline()):
                    return child.pid
            except psutil.NoSuchProcess:
                continue
        return None

    return find


async def test_a_killed_program_is_started_again(
    supervisord: Supervisord, eventually: Eventually
) -> None:
    find = the_child(supervisord, "signal.pause")
    supervisord.run([Program(name="sleeper", command=SLEEP, start_s=0)])
    await eventually(lambda: find() is not None)
    first = find()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: find() not in (None, first))


async def test_output_goes_to_the_programs_own_log(
    layout: Layout, supervisord: Supervisord, eventually: Eventually
) -> None:
    supervisord.run([Program(name="sleeper", command=SLEEP)])
    log = layout.logs / "sleeper.log"
    await eventually(lambda: log.exists() and log.read_text() == "up\n")


async def test_it_stops_the_chosen_programs_and_no_other(
    supervisord: Supervisord, eventually: Eventually
) -> None:
    supervisord.run([Program(name=name, command=SLEEP) for name in ("one", "two")])
    await eventually(lambda: len(children(supervisord)) == 2)
    supervisord.stop(lambda name: name == "one", 10)
    assert len(children(supervisord)) == 1


async def test_a_program_that_ignores_the_signal_is_killed_with_its_children(
    supervisord: Supervisord, eventually: Eventually, tmp_path: Path
) -> None:
    stubborn = tmp_path / "stubborn.py"
    stubborn.write_text(
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.run([sys.executable, '-c', 'import signal; signal.pause()'])\n"
    )
    supervisord.run([Program(name="stubborn", command=[sys.executable, str(stubborn)], stop_s=1)])
    me = psutil.Process(supervisord.pid)
    await eventually(lambda: len(me.children(recursive=True)) == 2)
    family = me.children(recursive=True)
    supervisord.stop(lambda name: True, 10)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


async def test_a_program_that_never_starts_is_given_up_and_can_be_revived(
    layout: Layout, supervisord: Supervisord, eventually: Eventually, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait = f"import os, signal; os.path.exists({str(gate)!r}) and signal.pause()"
    supervisord.run([Program(name="broken", command=[sys.executable, "-S", "-c", wait], start_s=1)])
    await eventually(lambda: supervisord.given_up() == ["broken"])
    gate.touch()
    supervisord.revive()
    await eventually(lambda: len(children(supervisord)) == 1)
    assert supervisord.given_up() == []


async def test_programs_that_run_already_run_on_when_others_are_added(
    supervisord: Supervisord, eventually: Eventually
) -> None:
    one, two = (Program(name=name, command=SLEEP) for name in ("one", "two"))
    supervisord.run([one])
    await eventually(lambda: len(children(supervisord)) == 1)
    (first,) = children(supervisord)
    supervisord.run([one, two])
    await eventually(lambda: len(children(supervisord)) == 2)
    assert first in children(supervisord)


async def test_copies_share_a_listening_socket_that_outlives_one_of_them(
    supervisord: Supervisord, eventually: Eventually, tmp_path: Path
) -> None:
    answer_pid = tmp_path / "answer_pid.py"
    answer_pid.write_text(
        "import os, socket\n"
        "listener = socket.socket(fileno=0)\n"
        "while True:\n"
        "    client, _ = listener.accept()\n"
        "    client.recv(4096)\n"
        "    body = str(os.getpid()).encode()\n"
        "    head = b'HTTP/1.0 200 OK\\r\\n\\r\\n'\n"
        "    client.sendall(head + body)\n"
        "    client.close()\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    supervisord.run(
        [
            Program(
                name="web",
                command=[sys.executable, str(answer_pid)],
                copies=2,
                listen=f"127.0.0.1:{port}",
            )
        ]
    )

    def ask() -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
            return int(answer.read())

    await eventually(lambda: len(children(supervisord)) == 2)
    killed = ask()
    os.kill(killed, signal.SIGKILL)
    # Until it is gone it may still take a connection with it.
    await eventually(lambda: not psutil.pid_exists(killed))
    # Not one connection is refused while the killed copy is away.
    assert ask() in {child.pid for child in children(supervisord)}


async def test_killed_embedded_servers_come_back_with_what_they_held(
    layout: Layout, eventually: Eventually, no_settings: pytest.MonkeyPatch
) -> None:
    postgres.prepare(layout)
    valkey.prepare(layout)
    with running(layout) as supervisord:
        supervisord.run(embedded_servers(Config(), layout))
        wait_for_postgres(layout.database_url, 20)
        wait_for_redis(layout.redis_url, 20)
        with psycopg.connect(layout.database_url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
        with redis.Redis.from_url(layout.redis_url) as client:
            client.set("kept", "7")
            client.execute_command("WAITAOF", 1, 0, 0)
        for server in ("bin/postgres", "valkey-server"):
            killed = the_child(supervisord, server)()
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            await eventually(lambda: not psutil.pid_exists(killed))  # noqa: B023
        wait_for_postgres(layout.database_url, 30)
        wait_for_redis(layout.redis_url, 30)
        with psycopg.connect(layout.database_url) as connection:
            assert connection.execute("SELECT value FROM kept").fetchone() == (7,)
        with redis.Redis.from_url(layout.redis_url) as client:
            assert client.get("kept") == b"7"


def test_a_process_manager_that_died_is_an_error(layout: Layout) -> None:
    supervisord = Supervisord(layout, dict(os.environ))
    os.kill(supervisord.pid, signal.SIGKILL)
    with pytest.raises(SupervisordError, match="did not start"):
        supervisord.wait_until_up(60)
    with pytest.raises(SupervisordError, match="failed"):
        supervisord.run([])
    assert not supervisord.is_alive


@pytest.mark.parametrize("name", ["a ;b", "a #b", "100%"])
def test_a_path_that_its_settings_cannot_hold_is_refused(name: str) -> None:
    layout = Layout(Path("/srv") / name)
    with pytest.raises(SupervisordError, match="DATA_DIR must be without"):
        render(layout, layout.sockets / "supervisor.sock", [])
