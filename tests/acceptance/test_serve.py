"""`manage.py serve`: one command starts everything, keeps it running and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from gateway.config import BASE_DIR, Config
from gateway.supervise.embedded import start_embedded
from inference.weights import DEFAULT_MODEL
from tests.acceptance.stack import eventually, free_port, insert_model

pytestmark = pytest.mark.acceptance

# Fetching and converting the model is part of a first start.
_READY_S = 300.0
_STOPPED_S = 10.0


class Serve:
    """One run of `manage.py serve` and all that it started."""

    def __init__(self, data_dir: Path, port: int | None = None, **settings: str) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._output = data_dir / f"serve-{self.port}.out"
        names = {name + end for name in Config.model_fields for end in ("", "_FILE")}
        environment = {name: value for name, value in os.environ.items() if name not in names}
        environment |= {"DATA_DIR": str(data_dir), "PORT": str(self.port), **settings}
        with self._output.open("wb") as output:
            self._process = psutil.Popen(
                [sys.executable, str(BASE_DIR / "manage.py"), "serve"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def wait_until_ready(self) -> None:
        def is_decided() -> bool:
            return "Ctrl-C to stop" in self.output or self._process.poll() is not None

        eventually(is_decided, "serve is ready", _READY_S)
        assert self._process.poll() is None, self.output

    def wait_for_exit(self, timeout_s: float = _READY_S) -> int:
        return int(self._process.wait(timeout_s))

    def descendants(self) -> list[psutil.Process]:
        return list(self._process.children(recursive=True))

    def find(self, words: str) -> psutil.Process | None:
        """Return the descendant that has these words in its command line."""
        for process in self.descendants():
            with suppress(psutil.NoSuchProcess):
                if words in " ".join(process.cmdline()):
                    return process
        return None

    def end(self) -> None:
        """Leave nothing running, whatever the tests have done."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(psutil.TimeoutExpired):
                self._process.wait(2 * _STOPPED_S)
        if self._process.poll() is None:
            processes = self.descendants()
            self._process.kill()
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


@contextmanager
def running(data_dir: Path, port: int | None = None, **settings: str) -> Iterator[Serve]:
    serve = Serve(data_dir, port, **settings)
    try:
        yield serve
    finally:
        serve.end()


@pytest.fixture(scope="module")
def make_data_dir() -> Iterator[Callable[[], Path]]:
    """Return a function that makes empty data directories."""
    # Not below pytest's own folder: Unix sockets have short paths.
    with tempfile.TemporaryDirectory(prefix="tandem-serve-") as folder:
        yield lambda: Path(tempfile.mkdtemp(dir=folder))


# --- A new install with the default model -----------------------------------------------------


@pytest.fixture(scope="module")
def served(make_data_dir: Callable[[], Path]) -> Iterator[Serve]:
    """Return a first start that is ready. Its weights are kept for other tests and runs."""
    models = Path(os.environ.get("TEST_MODELS_DIR", BASE_DIR / "var" / "models"))
    models.mkdir(parents=True, exist_ok=True)
    data_dir = make_data_dir()
    (data_dir / "models").symlink_to(models, target_is_directory=True)
    with running(data_dir) as serve:
        serve.wait_until_ready()
        yield serve


def ask_as_printed(serve: Serve) -> str:
    """Paste the printed request into a shell and return what comes back."""
    command = re.search(r"^curl .*?(?=\n\n)", serve.output, re.DOTALL | re.MULTILINE)
    assert command is not None, serve.output
    return subprocess.run(
        ["bash", "-c", command.group()], capture_output=True, check=True, text=True
    ).stdout


@pytest.mark.engine
def test_the_printed_request_is_answered_as_pasted(served: Serve) -> None:
    assert "Paris" in ask_as_printed(served)


@pytest.mark.engine
def test_the_printed_operator_can_log_in(served: Serve) -> None:
    shown = re.search(r"user (\S+), password (\S+)", served.output)
    assert shown is not None
    with httpx.Client(base_url=served.url, follow_redirects=True) as browser:
        browser.get("/admin/login/")
        form = {
            "username": shown[1],
            "password": shown[2],
            "csrfmiddlewaretoken": browser.cookies["csrftoken"],
        }
        page = browser.post("/admin/login/?next=/admin/", data=form)
    assert page.status_code == 200
    assert "Log out" in page.text


@pytest.mark.engine
def test_a_key_can_be_made_beside_a_running_install(served: Serve) -> None:
    environment = {**os.environ, "DATA_DIR": str(served.data_dir)}
    for name in ("DATABASE_URL", "REDIS_URL"):
        environment.pop(name, None)
    key = subprocess.run(
        [sys.executable, str(BASE_DIR / "manage.py"), "create_api_key", "another"],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.strip()
    models = httpx.get(f"{served.url}/v1/models", headers={"x-api-key": key})
    assert [model["id"] for model in models.json()["data"]] == [DEFAULT_MODEL]


@pytest.mark.engine
@pytest.mark.parametrize("words", ["daphne --fd 0", "valkey-server", "bin/postgres -D"])
def test_what_is_killed_comes_back_and_requests_are_answered_again(
    served: Serve, words: str
) -> None:
    killed = served.find(words)
    assert killed is not None
    killed.kill()

    def is_back() -> bool:
        found = served.find(words)
        return found is not None and found != killed

    eventually(is_back, f"{words} is back")
    eventually(lambda: "Paris" in ask_as_printed(served), "requests are answered again")


@pytest.mark.engine
def test_a_killed_engine_worker_comes_back_and_its_engine_is_not_left_running(
    served: Serve,
) -> None:
    worker = served.find("engine-1-")
    assert worker is not None
    engine = worker.children(recursive=True)
    assert engine, "vLLM runs in processes of its own"
    worker.kill()
    _, left = psutil.wait_procs(engine, timeout=30)
    assert left == []
    eventually(lambda: "Paris" in ask_as_printed(served), "a new engine answers", _READY_S)


@pytest.mark.engine
def test_a_second_run_on_the_same_data_directory_is_refused(served: Serve) -> None:
    with running(served.data_dir) as second:
        assert second.wait_for_exit() == 1
        message = f"data directory {served.data_dir} is in use by pid {served.pid}"
        assert message in second.output
        assert len(second.output.splitlines()) == 1


@pytest.mark.engine
def test_a_second_run_on_the_same_port_is_refused(
    served: Serve, make_data_dir: Callable[[], Path]
) -> None:
    with running(make_data_dir(), served.port) as second:
        assert second.wait_for_exit() == 1
        assert f"port {served.port} is taken; set PORT" in second.output
        assert len(second.output.splitlines()) == 1


# --- Later starts, with a scripted model that is up at once -----------------------------------


def prepare(data_dir: Path, canary_expect: str = "Jack") -> None:
    """Put a scripted model into the catalogue, so that serve fetches no other."""
    with start_embedded(data_dir) as servers:
        subprocess.run(
            [sys.executable, str(BASE_DIR / "manage.py"), "migrate", "-v0"],
            env={
                **os.environ,
                "DATA_DIR": str(data_dir),
                "DATABASE_URL": servers.database_url,
                "REDIS_URL": servers.redis_url,
            },
            check=True,
        )
        insert_model(
            servers.database_url,
            "scripted",
            backend="scripted",
            context_tokens=1000,
            capacity=4,
            max_waiting=4,
            canary_prompt="Hello",
            canary_expect=canary_expect,
        )


@pytest.fixture(scope="module")
def data_dir(make_data_dir: Callable[[], Path]) -> Path:
    """Return a data directory whose catalogue has a scripted model and no other."""
    folder = make_data_dir()
    prepare(folder)
    return folder


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything_in_time(data_dir: Path, number: signal.Signals) -> None:
    with running(data_dir) as serve:
        serve.wait_until_ready()
        everything = serve.descendants()
        assert any("postgres" in process.name() for process in everything)
        os.kill(serve.pid, number)
        assert serve.wait_for_exit(_STOPPED_S) == 0
        assert [process for process in everything if process.is_running()] == []


def test_a_signal_during_the_start_ends_everything(data_dir: Path) -> None:
    with running(data_dir) as serve:
        eventually(lambda: serve.find("daphne --fd 0") is not None, "the gateway is starting")
        everything = serve.descendants()
        os.kill(serve.pid, signal.SIGTERM)
        assert serve.wait_for_exit(_STOPPED_S) == 0
        assert [process for process in everything if process.is_running()] == []


def test_without_its_process_manager_serve_ends_everything_and_fails(data_dir: Path) -> None:
    with running(data_dir) as serve:
        serve.wait_until_ready()
        everything = serve.descendants()
        manager = serve.find("supervisor.supervisord")
        assert manager is not None
        manager.kill()
        assert serve.wait_for_exit() == 1
        assert "the process manager died" in serve.output
        assert [process for process in everything if process.is_running()] == []


def test_a_killed_serve_ends_everything_before_the_next_one_starts(data_dir: Path) -> None:
    with running(data_dir) as serve:
        serve.wait_until_ready()
        everything = serve.descendants()
        os.kill(serve.pid, signal.SIGKILL)
        serve.wait_for_exit()
        # Started at once, the next run waits until the last process of this one is gone.
        with running(data_dir) as following:
            following.wait_until_ready()
            assert [process for process in everything if process.is_running()] == []


def test_everything_ends_when_serve_and_its_process_manager_are_killed(data_dir: Path) -> None:
    with running(data_dir) as serve:
        serve.wait_until_ready()
        everything = serve.descendants()
        manager = serve.find("supervisor.supervisord")
        assert manager is not None
        # Stopped first: neither can clean up after the other.
        os.kill(serve.pid, signal.SIGSTOP)
        manager.kill()
        os.kill(serve.pid, signal.SIGKILL)
        _, left = psutil.wait_procs(everything, timeout=60)
        assert left == []


def test_servers_with_an_address_are_used_and_not_embedded(
    make_data_dir: Callable[[], Path], data_dir: Path
) -> None:
    elsewhere = make_data_dir()
    with (
        start_embedded(data_dir) as servers,
        running(elsewhere, DATABASE_URL=servers.database_url, REDIS_URL=servers.redis_url) as serve,
    ):
        serve.wait_until_ready()
        assert serve.find("valkey-server") is None
        assert serve.find("bin/postgres") is None
        assert not (elsewhere / "postgres").exists()


def test_an_engine_that_fails_its_canary_stops_the_start_and_says_why(
    make_data_dir: Callable[[], Path],
) -> None:
    folder = make_data_dir()
    prepare(folder, canary_expect="Paris")
    with running(folder) as serve:
        assert serve.wait_for_exit() == 1
        assert "scripted cannot serve: canary failed" in serve.output
        assert f"Logs are in {folder / 'logs'}" in serve.output
        assert "sk-tandem" not in serve.output
