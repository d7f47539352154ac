"""Secrets that the catalogue only refers to: they are in the environment or in files.

What is stored and shown is `${env:NAME}` or `${file:/path}`, with any text around it, such as
`Bearer ${env:TOKEN}`. What it stands for is read where it is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from inference.redaction import Redactor, remember

_REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")


class SecretError(Exception):
    """A secret that is not where its reference says; the message holds the reference only."""


def is_reference(text: str) -> bool:
    """Say whether a text refers to a secret at all."""
    return bool(_REFERENCE.search(text))


class Secrets:
    """The secrets that some texts refer to, read once. From then on no log shows them.

    Raises `SecretError` for one that is not there.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._found = {
            reference: _read(*reference)
            for text in texts.values()
            for reference in _references(text)
        }
        remember(self._found.values())
        self._redactor = Redactor(self._found.values())
        self.values = {name: self._filled(text) for name, text in texts.items()}

    @property
    def found(self) -> tuple[str, ...]:
        """The secrets themselves."""
        return tuple(self._found.values())

    def hide(self, text: str) -> str:
        """Return a text without any of the secrets."""
        return self._redactor.text(text)

    def _filled(self, text: str) -> str:
        return _REFERENCE.sub(lambda found: self._found[found[1], found[2]], text)


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text without any of these, those apart that are too short to tell."""
    return Redactor(secrets).text(text)


def _references(text: str) -> Iterator[tuple[str, str]]:
    for found in _REFERENCE.finditer(text):
        yield found[1], found[2]


def _read(kind: str, name: str) -> str:
    if kind == "env":
        if not (value := os.environ.get(name)):
            raise SecretError(f"the environment has no {name}")
        return value
    try:
        return Path(name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise SecretError(f"the file {name} cannot be read") from None
