"""What an operator says of an upstream: its address, where its key is, and what is changed of
requests on their way to it."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from inference.errors import ErrorCode, TandemError
from inference.secret_references import SecretError, Secrets

KEY_PATTERN = r"^\$\{(env:[A-Za-z_][A-Za-z0-9_]*|file:/[^${}]+)\}$"
"""A reference to a secret and nothing else: the key itself is never in the database."""

_NAME = "key"
# What makes a request what it is: the backend decides these.
_NEVER_OVERRIDDEN = ("model", "messages", "stream", "stream_options", "system")


class UpstreamEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream. The fields mean what `inference.models.Upstream` says they mean."""

    name: str
    base_url: str
    key: str
    connect_timeout_s: float
    read_timeout_s: float
    retries: int
    requests_per_minute: int | None


Extra = Literal[
    "top_k",
    "min_p",
    "min_tokens",
    "repetition_penalty",
    "cache_salt",
    "chat_template_kwargs",
    "reasoning",
    "reasoning_content",
]
"""Fields that OpenAI's own API does not have, and that other servers of its dialect take."""


class UpstreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of a model's requests on their way upstream.

    `system` goes before what the caller's system prompt says; `parameters` replace fields of the
    upstream's API, whatever the caller said. `default_max_tokens` is for callers who name no number
    where the API needs one. `accepts` and `max_tokens_field` are for servers of OpenAI's dialect:
    the fields beyond it that they take, and the name they know the limit by.
    """

    system: str = ""
    parameters: dict[str, Any] = {}
    default_max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 4096
    accepts: frozenset[Extra] = frozenset()
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"


def read_options(options: object) -> UpstreamOptions:
    """Return the options. Raises `ValueError` that says what is wrong."""
    try:
        read = msgspec.convert(options, UpstreamOptions)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    for name in _NEVER_OVERRIDDEN:
        if name in read.parameters:
            raise ValueError(f"`parameters` must not contain {name!r}")
    return read


def url_fault(url: str) -> str | None:
    """Return what is wrong with an upstream's address, or None."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"is no URL: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "must begin with https:// or http:// and a host"
    if parts.username is not None or parts.password is not None:
        return "must not contain a user or a password: a key is referred to by `key`"
    if parts.query or parts.fragment:
        return "must end with its path"
    return None


def read_secrets(key: str) -> Secrets:
    """Read the key that is referred to; it is `key_of` the result.

    Raises `TandemError` (ENGINE_FAILED) that says where it was looked for.
    """
    try:
        secrets = Secrets({_NAME: key})
    except SecretError as error:
        raise TandemError(ErrorCode.ENGINE_FAILED, f"its key cannot be read: {error}") from None
    found = secrets.values[_NAME]
    if key and not (found and found.isascii() and found.isprintable()):
        # The client would refuse it with a message that quotes it.
        raise TandemError(ErrorCode.ENGINE_FAILED, f"what {key} stands for is no key")
    return secrets


def key_of(secrets: Secrets) -> str:
    """Return the key, empty if the upstream needs none."""
    return secrets.values[_NAME]
