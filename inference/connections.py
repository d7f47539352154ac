"""What tests of a connection have in common, and why one could not be made, in plain words."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import NamedTuple

PATIENCE_S = 30.0
"""How long a test waits: an operator sits in front of it, but some programs are fetched first."""


class Finding(NamedTuple):
    """One thing that a test has found, for an operator to read."""

    ok: bool
    text: str


def reason_of(error: BaseException) -> str:
    """Return in one line what went wrong.

    The libraries in between put errors into groups and behind others, and tell of all that could
    not connect in the same words.
    """
    causes = list(_causes(error))
    for cause in causes:
        match cause:
            case socket.gaierror():
                return f"its host name cannot be resolved: {cause.strerror}"
            case ssl.SSLCertVerificationError():
                return f"its TLS certificate is not accepted: {cause.verify_message}"
            case ssl.SSLError():
                return f"TLS with it fails: {cause.reason or cause}"
            case ConnectionRefusedError():
                return "it refuses the connection"
    first = next(each for each in causes if not isinstance(each, BaseExceptionGroup))
    return str(first) or type(first).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what led to it, the first of each group."""
    current: BaseException | None = error
    while current is not None:
        yield current
        if isinstance(current, BaseExceptionGroup):
            current = current.exceptions[0]
        else:
            # Some libraries raise anew `from None`, though nothing else says as much.
            current = current.__cause__ or current.__context__
