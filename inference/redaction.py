"""Takes secrets out of what others say, and out of logs.

Whoever is given a secret may repeat it: an upstream in an error, a server's tool in its output, a
library in what it logs. All of that goes through a `Redactor` before anybody sees it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Iterator
from urllib.parse import quote

HIDDEN = "[secret]"
"""What takes a secret's place."""

# Anything shorter would be found in text that has nothing to do with it.
_FROM_LENGTH = 6
# So would words, in what those say who were not given the secret: `eu-central-1` is no key.
_ANYWHERE_FROM_LENGTH = 16


class Redactor:
    """Takes these secrets out of texts, and the long ones that this process has read besides.

    A secret is found as it is, and as Python, JSON and URLs write it.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._own = _spellings(secrets, _FROM_LENGTH)
        self._merged = (frozenset[str](), _ordered(self._own))

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for secret, _ in self._all():
            text = text.replace(secret, HIDDEN)
        return text

    def data(self, data: bytes) -> bytes:
        """Return the same for a text in UTF-8: the very same bytes, if there is none in it."""
        for _, secret in self._all():
            data = data.replace(secret, HIDDEN.encode())
        return data

    def _all(self) -> list[tuple[str, bytes]]:
        known, ordered = self._merged
        if known is not _known.spellings:
            known = _known.spellings
            ordered = _ordered(self._own | known)
            self._merged = known, ordered
        return ordered


def remember(secrets: Iterable[str]) -> None:
    """Have these hidden from now on by every `Redactor`, if they are long enough."""
    _known.add(_spellings(secrets, _ANYWHERE_FROM_LENGTH))


class RedactingFormatter(logging.Formatter):
    """Writes log records without secrets, their tracebacks too: libraries log what they like."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or the lines."""
        return _of_this_process.text(super().format(record))


class _Known:
    """The secrets that this process has read. Replaced, never changed: threads read it."""

    def __init__(self) -> None:
        self.spellings = frozenset[str]()
        self._lock = threading.Lock()

    def add(self, spellings: frozenset[str]) -> None:
        with self._lock:
            if not spellings <= self.spellings:
                self.spellings |= spellings


def _ordered(spellings: Iterable[str]) -> list[tuple[str, bytes]]:
    """The longest first: one may be the beginning of another."""
    longest_first = sorted(spellings, key=len, reverse=True)
    return [(text, text.encode("utf-8", "surrogateescape")) for text in longest_first]


def _spellings(secrets: Iterable[str], from_length: int) -> frozenset[str]:
    return frozenset(
        spelling
        for secret in secrets
        if len(secret) >= from_length
        for spelling in _spelled(secret)
    )


def _spelled(secret: str) -> Iterator[str]:
    yield secret
    yield repr(secret)[1:-1]
    for ascii_only in (True, False):
        in_json = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield in_json
        yield in_json.replace("/", "\\/")
    # A variable may hold bytes that are no text.
    yield quote(secret, safe="", errors="surrogateescape")


_known = _Known()
_of_this_process = Redactor()
