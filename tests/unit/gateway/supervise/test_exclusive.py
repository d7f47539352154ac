"""One `serve` per data directory and port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.supervise.exclusive import TakenError, check_port, hold_data_dir
from gateway.supervise.layout import Layout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.create()
    return layout


def test_a_held_data_directory_is_refused_with_the_holders_pid(layout: Layout) -> None:
    with hold_data_dir(layout), pytest.raises(TakenError) as refusal, hold_data_dir(layout):
        pass
    assert str(refusal.value) == f"data directory {layout.data_dir} is in use by pid {os.getpid()}"


def test_a_data_directory_can_be_held_again_once_it_is_let_go(layout: Layout) -> None:
    with hold_data_dir(layout):
        pass
    with hold_data_dir(layout):
        assert (layout.run / "lock").read_text() == str(os.getpid())


def test_it_waits_for_the_processes_of_a_killed_run(layout: Layout) -> None:
    inherit_and_die = (
        "import subprocess, sys\n"
        "from gateway.supervise.exclusive import hold_data_dir\n"
        "from gateway.supervise.layout import Layout\n"
        f"with hold_data_dir(Layout(__import__('pathlib').Path({str(layout.data_dir)!r}))) as fd:\n"
        "    sleeper = [sys.executable, '-c', 'input()']\n"
        "    child = subprocess.Popen(sleeper, pass_fds=[fd])\n"
        "    print('held', flush=True)\n"
        "    __import__('os').kill(__import__('os').getpid(), 9)\n"
    )
    killed = subprocess.Popen(
        [sys.executable, "-c", inherit_and_die],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == b"held\n"
    killed.wait()
    with pytest.raises(TakenError), hold_data_dir(layout, patience_s=0):
        pass
    # Its child, which sleeps until its standard input ends, is the last to hold the directory.
    killed.communicate()
    with hold_data_dir(layout):
        assert (layout.run / "lock").read_text() == str(os.getpid())


def test_a_taken_port_is_refused() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        port = other.getsockname()[1]
        with pytest.raises(TakenError, match=f"^port {port} is taken; set PORT$"):
            check_port("127.0.0.1", port)


def test_a_free_port_is_accepted_and_left_free() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


@pytest.mark.parametrize("host", ["::1", "no such host"])
def test_a_host_that_is_no_ipv4_address_is_refused(host: str) -> None:
    with pytest.raises(TakenError, match="is not an IPv4 address"):
        check_port(host, 8080)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(TakenError, match=r"cannot listen on 192\.0\.2\.1: .*; set HOST"):
        check_port("192.0.2.1", 8080)
