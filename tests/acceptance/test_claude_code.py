"""Claude Code against a live gateway, started by the launcher as a user starts it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from inference.backends.scripted import Script
from tests.acceptance.client import Client
from tests.acceptance.programs import install
from tests.acceptance.routes import Origin, add_far_models, reached, start_worker
from tests.acceptance.stack import ROOT, Gateway, Stack, ending, eventually

pytestmark = pytest.mark.acceptance

_PACKAGE = Path(__file__).parent / "claude_code"
# With its script: that puts the program in its place.
_NPM_CI = ["npm", "ci", "--no-audit", "--no-fund", "--prefer-offline"]
_PATIENCE_S = 120
_NOWHERE = "http://127.0.0.1:9"
_LAUNCHER = [sys.executable, str(ROOT / "manage.py"), "claude"]

_READER_CONTEXT_TOKENS = 40_000
# A prompt of some 200 tokens instead of 20,000.
SMALL = ["--bare", "--tools", "", "--system-prompt", "You answer in one sentence."]
TEXT = Script().text


@dataclass(frozen=True, kw_only=True)
class ClaudeCode:
    """The launcher and Claude Code, with a home and a folder of their own."""

    programs: Path
    home: Path
    url: str
    key: str

    @property
    def folder(self) -> Path:
        """Where it works."""
        return self.home / "work"

    def environment(self, **variables: str) -> dict[str, str]:
        """Return all that it may know; nothing but the gateway can be reached."""
        return {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "DATA_DIR": str(self.home / "var"),
            "TANDEM_API_KEY": self.key,
            "HTTPS_PROXY": _NOWHERE,
            "NO_PROXY": "127.0.0.1",
            **variables,
        }

    def launch(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the launcher to its end."""
        return self.run([*_LAUNCHER, "--url", self.url, *arguments], **variables)

    def run(self, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )

    def ask(self, model: str, prompt: str, *arguments: str, **variables: str) -> dict[str, Any]:
        """Return what Claude Code reports about one turn."""
        print_mode = ["-p", prompt, "--output-format", "json"]
        ended = self.launch("--model", model, "--", *print_mode, *arguments, **variables)
        assert ended.stdout, ended.stderr
        report: dict[str, Any] = json.loads(ended.stdout)
        return report

    def refusal(self, *arguments: str, **variables: str) -> str:
        """Return what the launcher says instead of starting Claude Code."""
        ended = self.launch(*arguments, **variables)
        assert (ended.returncode, ended.stdout) == (1, "")
        return ended.stderr


@pytest.fixture(scope="module")
def claude_code(
    tmp_path_factory: pytest.TempPathFactory, stack: Stack, gateway: Gateway
) -> ClaudeCode:
    """Return Claude Code as npm installs it, of a user whose settings name another service."""
    folder = tmp_path_factory.mktemp("npm") / "claude_code"
    shutil.copytree(_PACKAGE, folder, ignore=shutil.ignore_patterns("node_modules"))
    install("Claude Code", folder, _NPM_CI)
    home = tmp_path_factory.mktemp("home")
    (home / "work").mkdir()
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    other = {"ANTHROPIC_BASE_URL": _NOWHERE, "ANTHROPIC_MODEL": "opus"}
    settings.write_text(json.dumps({"env": other, "model": "opus"}))
    return ClaudeCode(
        programs=folder / "node_modules" / ".bin", home=home, url=gateway.url, key=stack.key
    )


@pytest.fixture(scope="module")
def near_reader(claude_code: ClaudeCode, stack: Stack, gateway: Gateway) -> Iterator[str]:
    """Return a model with an engine that reads a file of the user's and says what is in it."""
    note = claude_code.folder / "note.txt"
    note.write_text("The key is under the mat.\n")
    read = {"name": "Read", "arguments": ['{"file_path": ', json.dumps(str(note)), "}"]}
    name = stack.add_model(
        "reader",
        aliases=["claude-reader"],
        context_tokens=_READER_CONTEXT_TOKENS,
        tool_parser="hermes",
        engine_options={"text": "", "tool_calls": [read], "echo_results": True},
    )
    with ending(stack.start_worker(name)):
        gateway.wait_for_model(name)
        yield name


@pytest.fixture(scope="module")
def far_readers(
    stack: Stack, gateway: Gateway, near_reader: str
) -> Iterator[dict[tuple[str, str], str]]:
    """Return the names of models that lead to that one through an upstream, by way and model."""
    origin = Origin("reading", gateway.url, stack.mint("readers"))
    fields = {"context_tokens": _READER_CONTEXT_TOKENS}
    names = add_far_models(stack, origin, {near_reader: fields})
    with ending(start_worker(stack, gateway, names.values())):
        yield names


@pytest.fixture(scope="module")
def reader(request: pytest.FixtureRequest, near_reader: str, route: str) -> str:
    """Return what this way calls that model."""
    return reached(request, near_reader, route, "far_readers")


def check_turn(report: dict[str, Any], model: str) -> None:
    """Check what Claude Code reports about a turn of the shared scripted model."""
    assert report["result"] == TEXT
    assert not report["is_error"]
    ((used, usage),) = report["modelUsage"].items()
    assert used == model
    assert usage["contextWindow"] == 100_000


@pytest.mark.every_route
def test_a_turn_is_answered_by_the_model(claude_code: ClaudeCode, model: str) -> None:
    check_turn(claude_code.ask(model, "Hello."), model)


def test_an_alias_is_answered_by_its_model(claude_code: ClaudeCode, engine_model: str) -> None:
    check_turn(claude_code.ask("scripted", "Hello."), engine_model)


@pytest.mark.every_route
def test_a_tool_is_called_and_its_result_goes_back_to_the_model(
    claude_code: ClaudeCode, reader: str
) -> None:
    report = claude_code.ask(reader, "Where is the key?", "--allowedTools", "Read")
    assert "The key is under the mat." in report["result"]
    assert (report["num_turns"], report["permission_denials"]) == (2, [])


@pytest.mark.every_route
def test_an_answer_that_does_not_fit_is_asked_for_again_and_shorter(
    claude_code: ClaudeCode, gateway: Gateway, reader: str
) -> None:
    before = len(gateway.server.log.read_text())
    tools = ["--bare", "--tools", "Read", "--allowedTools", "Read"]
    report = claude_code.ask(reader, "Read it.", *tools, CLAUDE_CODE_MAX_OUTPUT_TOKENS="39999")
    assert "The key is under the mat." in report["result"]
    assert "exceed context limit" in gateway.server.log.read_text()[before:]


@pytest.mark.engine
@pytest.mark.every_route
def test_a_real_model_answers_a_small_prompt(claude_code: ClaudeCode, real_model: str) -> None:
    report = claude_code.ask(
        real_model,
        "What is the capital of France?",
        *SMALL,
        CLAUDE_CODE_EXTRA_BODY='{"temperature": 0}',
    )
    assert "Paris" in report["result"]
    assert not report["is_error"]
    assert report["modelUsage"][real_model]["contextWindow"] == 2048


@pytest.mark.engine
def test_a_context_that_is_too_short_is_named_before_and_after(
    claude_code: ClaudeCode, real_model: str
) -> None:
    ended = claude_code.launch("--model", real_model, "--", "-p", "Hello.")
    assert f"{real_model} has a context of 2048 tokens" in ended.stderr
    assert ended.stdout.startswith("Prompt is too long")
    assert ended.returncode == 1


def test_the_printed_environment_is_enough(claude_code: ClaudeCode, model: str) -> None:
    printed = claude_code.launch("--model", model, "--print-env").stdout
    asking = f"{printed}\nclaude -p Hello."
    other = {"ANTHROPIC_API_KEY": "sk-ant-other", "TANDEM_API_KEY": ""}
    assert claude_code.run(["sh", "-euc", asking], **other).stdout == f"{TEXT}\n"


def test_a_wrong_key_is_refused_before_the_start(claude_code: ClaudeCode, model: str) -> None:
    said = claude_code.refusal("--model", model, TANDEM_API_KEY="sk-tandem-wrong")
    assert "refuses the API key (invalid x-api-key)" in said


def test_a_key_that_is_refused_later_ends_the_turn_at_once(
    claude_code: ClaudeCode, model: str
) -> None:
    printed = claude_code.launch("--model", model, "--print-env").stdout
    wrong = f"{printed}\nANTHROPIC_AUTH_TOKEN=sk-tandem-wrong claude -p Hello."
    ended = claude_code.run(["sh", "-uc", wrong])
    assert ended.returncode == 1
    assert ended.stdout.startswith("Not logged in")


def test_an_unknown_model_is_refused_with_those_that_are_there(
    claude_code: ClaudeCode, model: str
) -> None:
    said = claude_code.refusal("--model", "opus")
    assert "model 'opus' not found" in said
    assert model in said


def test_a_model_without_an_engine_is_refused_with_the_reason(
    claude_code: ClaudeCode, stack: Stack, gateway: Gateway
) -> None:
    lonely = stack.add_model("lonely-claude")
    gateway.wait_for_model(lonely, state="missing", engines=0)
    assert "no engine is running for it" in claude_code.refusal("--model", lonely)


def test_a_gateway_that_is_not_there_is_named(claude_code: ClaudeCode) -> None:
    said = claude_code.refusal("--model", "scripted", "--url", _NOWHERE)
    assert f"cannot reach Tandem at {_NOWHERE}" in said


@pytest.mark.parametrize("path", ["/", "/api/hello"])
def test_what_it_warms_up_with_is_answered_without_a_key_and_a_redirect(
    gateway: Gateway, path: str
) -> None:
    answer = httpx.head(gateway.url + path)
    assert (answer.status_code, answer.content) == (200, b"")


def test_the_list_that_it_discovers_models_in_has_the_aliases(
    client: Client, stack: Stack, near_reader: str
) -> None:
    del client.http.headers["x-api-key"]
    headers = {"authorization": f"Bearer {stack.key}", "anthropic-version": "2023-06-01"}
    answer = client.http.get("/v1/models?limit=1000", headers=headers)
    assert answer.status_code == 200
    found = {row["id"]: row["display_name"] for row in answer.json()["data"]}
    assert found["claude-reader"] == "claude-reader (reader)"


@contextmanager
def on_a_terminal(claude_code: ClaudeCode, *arguments: str, **variables: str) -> Iterator[int]:
    """Run the launcher on a terminal, and end it; yields the terminal's other end."""
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    process = subprocess.Popen(
        [*_LAUNCHER, "--url", claude_code.url, *arguments],
        cwd=claude_code.folder,
        env=claude_code.environment(TERM="xterm-256color", **variables),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_it_discovers_models_by_their_aliases(claude_code: ClaudeCode, near_reader: str) -> None:
    known = claude_code.home / ".claude" / "cache" / "gateway-models.json"
    # What it asks a new user first, on a terminal.
    asked = {
        "hasCompletedOnboarding": True,
        "projects": {str(claude_code.folder): {"hasTrustDialogAccepted": True}},
    }
    (claude_code.home / ".claude.json").write_text(json.dumps(asked))
    discovery = {"CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1"}
    with on_a_terminal(claude_code, "--model", near_reader, **discovery) as terminal:
        screen = b""

        def has_found() -> bool:
            nonlocal screen
            with suppress(BlockingIOError):
                screen += os.read(terminal, 65536)
            return known.exists()

        eventually(has_found, f"Claude Code keeps the models that it found: {screen!r}")
    models = {row["id"]: row["display_name"] for row in json.loads(known.read_text())["models"]}
    assert models["claude-reader"] == "claude-reader (reader)"
    assert all(re.match("claude|anthropic", name) for name in models)
