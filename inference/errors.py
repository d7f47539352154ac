"""The one family of errors. It knows no HTTP: `gateway.errors` maps codes to statuses."""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """What went wrong, in the words used in code, logs, metrics and the audit trail."""

    INVALID_REQUEST = "invalid_request"
    PROMPT_TOO_LONG = "prompt_too_long"
    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    BALANCE_EXHAUSTED = "balance_exhausted"
    SPEND_CAP = "spend_cap"
    RATE_LIMITED = "rate_limited"
    NOT_FOUND = "not_found"
    MODEL_NOT_FOUND = "model_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    TOO_LARGE = "too_large"
    CONFLICT = "conflict"
    RESOURCE_UNAVAILABLE = "resource_unavailable"
    EXPIRED = "expired"
    NO_ENGINE = "no_engine"
    UNAVAILABLE = "unavailable"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    ENGINE_FAILED = "engine_failed"
    ENGINE_LOST = "engine_lost"
    CANCELLED = "cancelled"
    INTERNAL = "internal"

    @classmethod
    def read(cls, text: str) -> ErrorCode:
        """Return the code that was stored; INTERNAL for what is none."""
        try:
            return cls(text)
        except ValueError:
            return cls.INTERNAL


class TandemError(Exception):
    """An error with a code and a message that may be shown to the caller.

    `retry_after_s` is how long the caller should wait before it tries again, if that helps.
    `param` is the path of the field that is wrong, and `reason` a narrower code than `code`, in
    the words of the caller's dialect, for the dialects that tell of them apart from the message.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        retry_after_s: float | None = None,
        param: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        self.param = param
        self.reason = reason
