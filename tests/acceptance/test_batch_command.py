"""`manage.py batch`: a file of requests in, a file of answers out, and words that help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import openai
import pytest

from tests.acceptance.client import script
from tests.acceptance.stack import ROOT, Gateway, Stack, ending, eventually, free_port
from tests.acceptance.teams import set_price
from tests.acceptance.test_openai_batches import chat_row

pytestmark = pytest.mark.acceptance

# Starting the command and watching a batch to its end, on a busy machine.
_PATIENCE_S = 180

Done = subprocess.CompletedProcess[str]


class Command(Protocol):
    """Runs `manage.py batch` with the arguments."""

    def __call__(self, *arguments: str | Path, **environment: str) -> Done:
        """Environment variables besides the address and the key."""


@pytest.fixture(scope="module", autouse=True)
def _clerk(stack: Stack) -> Iterator[None]:
    """Have somebody validate batches and write their results."""
    with ending(stack.start_clerk()):
        yield


@pytest.fixture(scope="module")
def batch(stack: Stack, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Return the command, which knows nothing of the stack but its address and a key."""
    # Its own data directory is empty, and there is no database.
    folder = tmp_path_factory.mktemp("elsewhere")

    def run(*arguments: str | Path, **environment: str) -> Done:
        known = {"TANDEM_BASE_URL": gateway.url, "TANDEM_API_KEY": stack.key}
        return subprocess.run(
            [sys.executable, "manage.py", "batch", *arguments],
            cwd=ROOT,
            env=os.environ | {"DATA_DIR": str(folder)} | known | environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )

    return run


@pytest.fixture
def rows(tmp_path: Path, model: str) -> Path:
    """Return a file of two requests, of which one cannot be run."""
    return write(
        tmp_path / "rows.jsonl",
        chat_row("good", model, script(text="Paris.")),
        chat_row("bad", model, temperature="hot"),
    )


def write(path: Path, *requests: dict[str, Any]) -> Path:
    """Write a file of requests."""
    path.write_text("".join(json.dumps(request) + "\n" for request in requests))
    return path


def read(text: str) -> dict[str, dict[str, Any]]:
    """Return a file's lines by their custom ids."""
    return {line["custom_id"]: line for line in map(json.loads, text.splitlines())}


def test_a_file_is_submitted_and_watched_to_its_end(
    batch: Command, rows: Path, stack: Stack, model: str
) -> None:
    set_price(stack, model)
    done = batch("submit", rows, "--watch")
    assert (done.returncode, done.stderr) == (0, "")
    batch_id, report = done.stdout.splitlines()
    assert batch_id.startswith("batch_")
    assert report.startswith(f"{batch_id}: 2 of 2 rows done; completed, 1 failed, ")
    assert "+1 tokens, cost 0.0000" in report
    assert batch("watch", batch_id).stdout.splitlines() == [report]


def test_results_go_to_standard_output(batch: Command, rows: Path) -> None:
    batch_id = batch("submit", rows, "--watch").stdout.splitlines()[0]
    done = batch("results", batch_id)
    assert (done.returncode, done.stderr) == (0, "")
    lines = read(done.stdout)
    assert lines.keys() == {"good", "bad"}
    (choice,) = lines["good"]["response"]["body"]["choices"]
    assert choice["message"]["content"] == "Paris."


def test_results_go_to_files_answers_and_errors_apart(
    batch: Command, rows: Path, tmp_path: Path
) -> None:
    batch_id = batch("submit", rows, "--watch").stdout.splitlines()[0]
    output, errors = tmp_path / "out.jsonl", tmp_path / "out.errors.jsonl"
    done = batch("results", batch_id, "--output", output)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"1 answers in {output}", f"1 errors in {errors}"]
    assert read(output.read_text()).keys() == {"good"}
    assert read(errors.read_text())["bad"]["response"]["status_code"] == 400


def test_without_errors_there_is_no_file_of_them(
    batch: Command, model: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "rows", chat_row("a", model))
    batch_id = batch("submit", path, "--watch").stdout.splitlines()[0]
    output = tmp_path / "out.jsonl"
    assert batch("results", batch_id, "--output", output).stdout == f"1 answers in {output}\n"
    assert {path.name for path in tmp_path.iterdir()} == {"rows", "out.jsonl"}


def test_what_is_wrong_with_a_file_is_told_line_by_line(
    batch: Command, model: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "rows.jsonl", chat_row("a", model), chat_row("a", "nobody"))
    batch_id = batch("submit", path).stdout.strip()
    done = batch("watch", batch_id)
    assert done.returncode == 1
    assert "line 2: " in done.stderr
    assert "(duplicate_custom_id)" in done.stderr
    assert "the batch failed: nothing of it was run" in done.stderr
    assert "Traceback" not in done.stderr
    none = batch("results", batch_id)
    assert (none.returncode, none.stdout) == (1, "")
    assert f"{batch_id} is failed: it has no results" in none.stderr


def test_a_batch_is_cancelled_and_its_results_wait_for_the_end(
    batch: Command, stack: Stack, gateway: Gateway, tmp_path: Path
) -> None:
    name = stack.add_model("vendor/Stopped", capacity=1)
    batch_id = batch("submit", write(tmp_path / "rows.jsonl", chat_row("a", name))).stdout.strip()
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=stack.key) as api:
        eventually(lambda: api.batches.retrieve(batch_id).in_progress_at, "the batch has begun")
    output = tmp_path / "out.jsonl"
    early = batch("results", batch_id, "--output", output)
    assert early.returncode == 1
    assert f"{batch_id} is in_progress: `manage.py batch watch {batch_id}`" in early.stderr
    assert not output.exists()
    assert batch("cancel", batch_id).stdout.startswith(f"{batch_id}: ")
    assert "; cancelled" in batch("watch", batch_id).stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("{}\n", "the first line is no request"),
        ("nonsense\n", '{"custom_id": "1", "method": "POST", "url":'),
    ],
)
def test_a_file_that_is_none_is_explained(
    batch: Command, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    done = batch("submit", path)
    assert done.returncode == 1
    assert message in done.stderr
    assert str(path) in done.stderr


def test_the_gateways_own_words_are_passed_on(batch: Command, rows: Path) -> None:
    wrong = batch("submit", rows, "--endpoint", "/v1/embeddings")
    assert wrong.returncode == 1
    assert "answers 400: " in wrong.stderr
    assert "endpoint" in wrong.stderr
    unknown = batch("watch", "batch_0198c5a0-0000-7000-8000-000000000001")
    assert unknown.returncode == 1
    assert "answers 404: " in unknown.stderr


def test_what_keeps_it_from_asking_is_explained(
    batch: Command, rows: Path, gateway: Gateway
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    for done, message in (
        (
            batch("submit", rows, TANDEM_API_KEY="wrong"),
            f"{gateway.url} does not know this API key",
        ),
        (batch("submit", rows, "--key", "wrong"), f"{gateway.url} does not know this API key"),
        (batch("submit", rows, TANDEM_API_KEY=""), "no API key: set TANDEM_API_KEY"),
        (batch("submit", rows, "--url", nowhere), f"{nowhere} cannot be reached"),
        (batch("submit", rows.with_name("none")), "No such file"),
    ):
        assert done.returncode == 1
        assert message in done.stderr
        assert "Traceback" not in done.stderr
