"""An upstream's error on its way to a caller who is to have it as it is."""

from __future__ import annotations

from inference.errors import ErrorCode, TandemError
from inference.events import Failed, RawAnswer


class RawError(TandemError):
    """What an upstream said instead of an answer: the caller gets that, status and all."""

    def __init__(self, code: ErrorCode, message: str, answer: RawAnswer) -> None:
        super().__init__(code, message)
        self.answer = answer


def error_of(failed: Failed) -> TandemError:
    """Return the error that a run ended with."""
    if failed.answer is None:
        return TandemError(failed.code, failed.message)
    return RawError(failed.code, failed.message, failed.answer)
