"""Claude Code as a client: whether a gateway can serve it, and what its environment must say.

It knows neither Django nor a setting, only the gateway's public API: the gateway may be anywhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec

_Shape = TypeVar("_Shape")

KEY_VARIABLE = "TANDEM_API_KEY"

DISCOVERY = "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY"
_MAX_OUTPUT = "CLAUDE_CODE_MAX_OUTPUT_TOKENS"

# Claude Code calls a model by its role, and some of its own accord: every role is the one model.
_ROLES = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_FABLE_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    # The name that older versions have for the one before.
    "ANTHROPIC_SMALL_FAST_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
)

# Credentials and providers of other services, any of which would be preferred to Tandem's.
_OTHERS = (
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
)

# What Claude Code asks for by default, and how much of a context an answer may take: the request
# must fit, and what is reserved for the answer is lost to the conversation.
_MOST_OUTPUT_TOKENS = 32_000
_OUTPUT_SHARE = 4

# Its instructions and tools take 12,000 to 21,000 tokens, by version, and it summarizes a
# conversation 13,000 tokens before there is no more room for an answer.
_COMFORTABLE_CONTEXT_TOKENS = 65_536

# Counting needs an engine's tokenizer, so its answer says whether there is an engine.
_PROBE = [{"role": "user", "content": "Hello"}]
_TIMEOUT_S = 30


class ClaudeCodeError(Exception):
    """Claude Code cannot be started; the message says why, and what to do."""


class _Supported(msgspec.Struct, frozen=True):
    supported: bool


class _Capabilities(msgspec.Struct, frozen=True):
    tools: _Supported


class ServedModel(msgspec.Struct, frozen=True):
    """A model, as `GET /v1/models/{id}` shows it."""

    id: str
    context_tokens: int
    capabilities: _Capabilities


class _Id(msgspec.Struct, frozen=True):
    id: str


class _List(msgspec.Struct, frozen=True):
    data: list[_Id]


class _Error(msgspec.Struct, frozen=True):
    message: str


class _Failure(msgspec.Struct, frozen=True):
    error: _Error


def base_url(text: str) -> str:
    """Return a gateway's address as Claude Code wants it: without `/v1` and slashes at its end.

    Raises `ClaudeCodeError` if it is no address.
    """
    url = text.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    try:
        parsed = httpx.URL(url)
        is_address = parsed.scheme in ("http", "https") and bool(parsed.host)
    except httpx.InvalidURL:
        is_address = False
    if not is_address:
        raise ClaudeCodeError(f"{text!r} is no address: write it as http://host:port")
    return url


class Gateway:
    """Asks one gateway, as Claude Code will. Its methods raise `ClaudeCodeError`."""

    def __init__(self, url: str, key: str, transport: httpx.BaseTransport | None = None) -> None:
        """Take the address as `base_url` returns it; `transport` is for tests."""
        if not key.isascii():
            raise ClaudeCodeError("the API key has letters that no key has: is it whole?")
        self._url = url
        self._transport = transport
        self._headers = {"authorization": f"Bearer {key}"}

    def find(self, name: str) -> ServedModel:
        """Return the model of that id or alias, which an engine is ready to serve."""
        answer = self._ask("GET", f"/v1/models/{quote(name, safe='')}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise ClaudeCodeError(
                f"{self._failure(answer)} at {self._url}, which has: {', '.join(self._ids())}"
            )
        model = self._decode(answer, ServedModel)
        counted = self._ask(
            "POST", "/v1/messages/count_tokens", {"model": model.id, "messages": _PROBE}
        )
        if counted.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            raise ClaudeCodeError(self._failure(counted))
        return model

    def _ids(self) -> list[str]:
        return [row.id for row in self._decode(self._ask("GET", "/v1/models"), _List).data]

    def _ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        try:
            with httpx.Client(transport=self._transport, timeout=_TIMEOUT_S) as client:
                answer = client.request(method, self._url + path, json=body, headers=self._headers)
        except httpx.HTTPError as error:
            raise ClaudeCodeError(
                f"cannot reach Tandem at {self._url} ({error}): "
                "start it there, or give its address with --url"
            ) from None
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise ClaudeCodeError(
                f"{self._url} refuses the API key ({self._failure(answer)}): "
                f"set {KEY_VARIABLE} to one that `manage.py create_api_key NAME` has printed there"
            )
        return answer

    def _failure(self, answer: httpx.Response) -> str:
        return self._decode(answer, _Failure).error.message

    def _decode(self, answer: httpx.Response, shape: type[_Shape]) -> _Shape:
        try:
            return msgspec.json.decode(answer.content, type=shape)
        except msgspec.MsgspecError:
            raise ClaudeCodeError(
                f"{answer.url} answers with status {answer.status_code} and not as Tandem does: "
                "is --url right?"
            ) from None


def changes(
    model: ServedModel, url: str, key: str, inherited: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the variables that Claude Code needs beside the inherited ones; None takes one away.

    The catalogue's id stands for an alias: of a model whose name begins with `claude-` Claude Code
    believes to know the context. An output limit that the user has set stays.
    """
    output_tokens = min(_MOST_OUTPUT_TOKENS, model.context_tokens // _OUTPUT_SHARE)
    needed: dict[str, str | None] = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": key,
        # Without it the user's settings files overrule the address, and get the key.
        "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST": "1",
        **dict.fromkeys(_ROLES, model.id),
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(model.context_tokens),
        # Else it takes the model that it offers first for one with a million tokens.
        "CLAUDE_CODE_DISABLE_1M_CONTEXT": "1",
        _MAX_OUTPUT: inherited.get(_MAX_OUTPUT) or str(output_tokens),
        "DISABLE_AUTOUPDATER": "1",
    }
    if inherited.get(DISCOVERY):
        # Discovery counts as nonessential: what else does is switched off one by one.
        needed |= {"DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1"}
        needed["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = None
    else:
        needed["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
    return needed | dict.fromkeys(_OTHERS)


def apply(needed: Mapping[str, str | None], inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment after the changes."""
    merged = {**inherited, **needed}
    return {name: value for name, value in merged.items() if value is not None}


def shell_lines(needed: Mapping[str, str | None]) -> str:
    """Return the changes as lines for a POSIX shell."""
    gone = [name for name, value in needed.items() if value is None]
    kept = [
        f"export {name}={shlex.quote(value)}" for name, value in needed.items() if value is not None
    ]
    return "\n".join([f"unset {' '.join(gone)}", *kept])


def warnings(model: ServedModel) -> list[str]:
    """Return what the user should know about the model before Claude Code starts on it."""
    found = []
    if model.context_tokens < _COMFORTABLE_CONTEXT_TOKENS:
        found.append(
            f"{model.id} has a context of {model.context_tokens} tokens, and Claude Code's own "
            "instructions and tools take 12,000 to 21,000: see docs/guides/claude-code.md"
        )
    if not model.capabilities.tools.supported:
        found.append(f"{model.id} cannot call tools: Claude Code will only talk")
    return found
