"""What the operator sees."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import replace
from pathlib import Path

from gateway.supervise.console import Progress, Running, banner

RUNNING = Running(
    address="http://127.0.0.1:8080",
    model="smollm2-135m-instruct",
    manage=".venv/bin/python manage.py",
    logs=Path("/srv/tandem/logs"),
    key="sk-tandem-abc",
    operator="admin",
    password="s3cret",
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def curl_line(text: str) -> list[str]:
    """Return the arguments of the printed curl command as a shell would pass them."""
    start = text.index("curl ")
    return shlex.split(text[start : text.index("\n\n", start)].replace("\\\n", " "))


def test_the_curl_line_is_a_whole_request() -> None:
    command, url, *rest = curl_line(banner(RUNNING))
    assert (command, url) == ("curl", "http://127.0.0.1:8080/v1/messages")
    assert rest[:4] == ["-H", "x-api-key: sk-tandem-abc", "-H", "content-type: application/json"]
    body = json.loads(rest[5])
    assert body["model"] == "smollm2-135m-instruct"
    assert (body["temperature"], body["max_tokens"]) == (0, 32)
    assert "capital of France" in body["messages"][0]["content"]


def test_a_new_install_shows_its_key_and_password() -> None:
    text = banner(RUNNING)
    assert "sk-tandem-abc   (not shown again)" in text
    assert "http://127.0.0.1:8080/admin/   user admin, password s3cret" in text
    assert "/srv/tandem/logs" in text


def test_a_later_start_says_how_to_get_a_key() -> None:
    text = banner(replace(RUNNING, key=None, password=None))
    assert ".venv/bin/python manage.py create_api_key NAME" in text
    assert '-H "x-api-key: $TANDEM_API_KEY"' in text
    assert "password" not in text


def test_without_a_model_there_is_no_request_to_paste() -> None:
    assert "curl" not in banner(replace(RUNNING, model=None))


def test_off_a_terminal_each_thing_waited_for_is_one_plain_line() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    for text in ("Loading", "Loading", "Checking"):
        progress.wait_for(text)
    progress.say("Done")
    assert stream.getvalue() == "Loading ...\nChecking ...\nDone\n"


def test_on_a_terminal_the_line_moves_and_is_cleared() -> None:
    stream = Terminal()
    progress = Progress(stream)
    progress.wait_for("Loading")
    progress.wait_for("Loading")
    progress.say("Done")
    assert "\n" not in stream.getvalue().removesuffix("Done\n")
    assert stream.getvalue().endswith("\r\x1b[KDone\n")
