"""The command that sends a request again, run by a shell with a curl that only tells."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gateway.admin.screens.repeat import curl

FAKE_CURL = """#!/bin/sh
printf '%s\\n' "$@" > arguments
cat > body
"""


def run(command: str, folder: Path) -> tuple[list[str], bytes]:
    """Return what curl is given, and what it would send."""
    program = folder / "curl"
    program.write_text(FAKE_CURL)
    program.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "TANDEM_API_KEY": "the-key"}
    subprocess.run(["/bin/sh", "-c", command], cwd=folder, env=environment, check=True)
    arguments = (folder / "arguments").read_text().splitlines()
    return arguments, (folder / "body").read_bytes()


@pytest.mark.parametrize(
    ("dialect", "path"),
    [
        ("anthropic", "/v1/messages"),
        ("chat", "/v1/chat/completions"),
        ("responses", "/v1/responses"),
    ],
)
def test_it_goes_to_the_dialect_s_path_with_the_caller_s_own_key(
    tmp_path: Path, dialect: str, path: str
) -> None:
    command = curl("https://tandem.example", dialect, b"{}", "request.json")
    assert command is not None
    arguments, _ = run(command, tmp_path)
    assert f"https://tandem.example{path}" in arguments
    assert "x-api-key: the-key" in arguments


@pytest.mark.parametrize(
    "text",
    ["plain", 'it\'s "quoted" `here` $HOME \\ !', "two\nlines", "Grüße, 世界 🎉", "JSON\nJSON"],
)
def test_the_body_is_sent_as_it_was_whatever_it_says(tmp_path: Path, text: str) -> None:
    body = json.dumps({"input": text}, ensure_ascii=False).encode()
    command = curl("http://h", "responses", body, "request.json")
    assert command is not None
    _, sent = run(command, tmp_path)
    assert sent.rstrip(b"\n") == body


def test_a_mark_of_the_byte_order_is_left_out(tmp_path: Path) -> None:
    command = curl("http://h", "chat", b'\xef\xbb\xbf{"a":1}', "request.json")
    assert command is not None
    assert run(command, tmp_path)[1] == b'{"a":1}\n'


@pytest.mark.parametrize("body", [b'{"a":"' + b"x" * 20_000 + b'"}', b'{"a":1,\nJSON\n'])
def test_what_cannot_stand_in_a_command_is_read_from_its_file(tmp_path: Path, body: bytes) -> None:
    command = curl("http://h", "chat", body, "request-1.json")
    assert command is not None
    assert len(command) < 1_000
    assert "@request-1.json" in run(f"{command} < /dev/null", tmp_path)[0]


def test_there_is_none_for_a_dialect_that_is_not_known() -> None:
    assert curl("http://h", "telepathy", b"{}", "request.json") is None
