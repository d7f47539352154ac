"""Secrets are taken out of texts, however they are written there."""

from __future__ import annotations

import json
import logging
from urllib.parse import quote

import pytest

from inference import redaction
from inference.redaction import RedactingFormatter, Redactor, remember

KEY = 'sk-a/b+c=d"e\nf-planted'


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process not have read any secret yet."""
    monkeypatch.setattr(redaction, "_known", redaction._Known())


@pytest.mark.parametrize(
    "written",
    [
        KEY,
        json.dumps(KEY)[1:-1],
        json.dumps(KEY)[1:-1].replace("/", "\\/"),
        repr(KEY)[1:-1],
        quote(KEY, safe=""),
    ],
)
def test_a_secret_is_found_however_it_is_written(written: str) -> None:
    redactor = Redactor([KEY])

    assert redactor.text(f"bad key <{written}>!") == "bad key <[secret]>!"
    assert redactor.data(f"bad key <{written}>!".encode()) == b"bad key <[secret]>!"


def test_text_beyond_ascii_is_found_too() -> None:
    redactor = Redactor(["schlüssel"])

    for written in ("schlüssel", "schl\\u00fcssel", "schl%C3%BCssel"):
        assert redactor.text(written) == "[secret]"


def test_bytes_that_are_no_text_may_be_a_secret() -> None:
    secret = b"planted-\xff".decode("utf-8", "surrogateescape")

    assert Redactor([secret]).data(b"<planted-\xff>") == b"<[secret]>"


def test_what_has_none_is_the_very_same() -> None:
    data = b"nothing of interest"

    assert Redactor([KEY]).data(data) is data


def test_what_is_too_short_to_tell_stays() -> None:
    assert Redactor(["", "abcde"]).text("abcdefg") == "abcdefg"


def test_the_longest_is_taken_out_first() -> None:
    redactor = Redactor(["secret-1", "secret-1-and-more"])

    assert redactor.text("secret-1-and-more, secret-1") == "[secret], [secret]"


def test_long_ones_that_this_process_has_read_are_hidden_everywhere() -> None:
    before = Redactor(["mine-1234"])
    remember(["theirs-that-is-long", "eu-central-1"])

    said = "mine-1234 theirs-that-is-long eu-central-1"
    assert before.text(said) == "[secret] [secret] eu-central-1"
    assert Redactor().text(said) == "mine-1234 [secret] eu-central-1"


def test_logs_and_their_tracebacks_have_none() -> None:
    remember(["theirs-that-is-long"])
    formatter = RedactingFormatter("%(levelname)s %(message)s")
    try:
        raise ValueError("bad header b'theirs-that-is-long'")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    said = ("theirs-that-is-long",)
    record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "of %s", said, info)

    lines = formatter.format(record)

    assert lines.startswith("ERROR of [secret]\n")
    assert "bad header b'[secret]'" in lines
    assert "theirs" not in lines
