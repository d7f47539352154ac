"""The launcher of Claude Code, with a gateway and a `claude` that are only played."""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from django.core.management import CommandError, call_command

from gateway.claude_code import ClaudeCodeError, ServedModel
from gateway.management.commands import claude

ARGUMENTS = ["--model", "m", "--url", "http://tandem.example/v1/"]


class PlayedGateway:
    """Has every model but `unknown`, and tells in the model's id how it was asked."""

    def __init__(self, url: str, key: str) -> None:
        self._asked_by = f"{url} {key}"

    def find(self, name: str) -> ServedModel:
        if name == "unknown":
            raise ClaudeCodeError("model 'unknown' not found")
        row = {"id": f"{name} {self._asked_by}", "context_tokens": 8192}
        return msgspec.convert(row | {"capabilities": {"tools": {"supported": True}}}, ServedModel)


class Executed(Exception):  # noqa: N818
    """Raised where the command would have become another program."""

    def __init__(self, program: str, arguments: list[str], environment: dict[str, str]) -> None:
        super().__init__(program)
        self.program = program
        self.arguments = arguments
        self.environment = environment


def execute(program: str, arguments: list[str], environment: dict[str, str]) -> None:
    raise Executed(program, arguments, environment)


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put a `claude` on the path and return it."""
    path = tmp_path / "claude"
    path.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TANDEM_API_KEY", "k-variable")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant")
    monkeypatch.setattr(claude, "Gateway", PlayedGateway)
    monkeypatch.setattr(os, "execve", execute)
    return path


def run(*arguments: str) -> tuple[str, str]:
    stdout, stderr = StringIO(), StringIO()
    call_command("claude", *arguments, stdout=stdout, stderr=stderr, no_color=True)
    return stdout.getvalue(), stderr.getvalue()


def test_it_becomes_claude_with_the_environment_and_the_arguments(program: Path) -> None:
    with pytest.raises(Executed) as executed:
        run(*ARGUMENTS, "--", "-p", "hello", "--model", "n")
    assert executed.value.program == str(program)
    assert executed.value.arguments == [str(program), "-p", "hello", "--model", "n"]
    environment = executed.value.environment
    assert environment["ANTHROPIC_BASE_URL"] == "http://tandem.example"
    assert environment["ANTHROPIC_MODEL"] == "m http://tandem.example k-variable"
    assert environment["PATH"] == os.environ["PATH"]
    assert "ANTHROPIC_API_KEY" not in environment


def test_a_key_given_by_hand_wins() -> None:
    with pytest.raises(Executed) as executed:
        run(*ARGUMENTS, "--key", "k-option")
    assert executed.value.environment["ANTHROPIC_AUTH_TOKEN"] == "k-option"


def test_the_gateway_of_this_machine_is_asked_by_default() -> None:
    with pytest.raises(Executed) as executed:
        run("--model", "m")
    assert executed.value.environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8080"


def test_the_environment_is_printed_where_no_claude_is_installed(program: Path) -> None:
    program.unlink()
    stdout, stderr = run(*ARGUMENTS, "--print-env")
    assert "export ANTHROPIC_BASE_URL=http://tandem.example\n" in stdout
    assert stdout.startswith("unset ANTHROPIC_API_KEY ")
    # What warns must not stand between the lines for the shell.
    assert "8192 tokens" in stderr
    assert "8192 tokens" not in stdout


def test_a_missing_claude_comes_with_the_line_that_installs_it(program: Path) -> None:
    program.unlink()
    with pytest.raises(CommandError, match="npm install -g @anthropic-ai/claude-code"):
        run(*ARGUMENTS)


def test_a_missing_key_comes_with_the_way_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TANDEM_API_KEY")
    with pytest.raises(CommandError, match=r"set TANDEM_API_KEY .*create_api_key"):
        run(*ARGUMENTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "m", "--url", "tandem"], "'tandem' is no address"),
        (["--model", "unknown"], "model 'unknown' not found"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_started(arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        run(*arguments)
