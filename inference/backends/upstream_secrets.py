"""Keeps secrets out of what upstreams say: they may repeat what they were sent."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Any

import msgspec

from inference.backends.whole_text import mended
from inference.events import Event, Failed, RawAnswer, RawFrame
from inference.redaction import Redactor
from inference.request import GenerationRequest, RawRequest
from inference.secret_references import Secrets

MAX_MESSAGE_CHARS = 1200
"""What is told of an upstream's error, where that is not passed on as it is."""

_CONNECTORS = b'"mcp_servers"'


class _Connectors(msgspec.Struct):
    mcp_servers: Any = None


def redactor_of(request: GenerationRequest, secrets: Secrets) -> Redactor:
    """Return what takes the upstream's key out of an answer, and keys that the request brings."""
    tokens = list(_tokens(request.raw)) if request.raw is not None else []
    return Redactor([*secrets.found, *tokens])


def told(message: str, redactor: Redactor) -> str:
    """Return a message as others may see it. Cut last: half a secret would not be found."""
    return mended(redactor.text(message))[:MAX_MESSAGE_CHARS]


def redacted(event: Event, redactor: Redactor) -> Event:
    """Return an event without secrets: errors, and what travels as the upstream has said it."""
    match event:
        case RawFrame(data=data, last=last):
            return RawFrame(redactor.data(data), last=last)
        case RawAnswer():
            return _redacted_answer(event, redactor)
        case Failed(code=code, message=message, answer=answer):
            answer = answer and _redacted_answer(answer, redactor)
            return Failed(code=code, message=told(message, redactor), answer=answer)
    return event


def _redacted_answer(answer: RawAnswer, redactor: Redactor) -> RawAnswer:
    return RawAnswer(
        body=redactor.data(answer.body),
        status=answer.status,
        headers=tuple((name, redactor.text(value)) for name, value in answer.headers),
    )


def _tokens(raw: RawRequest) -> Iterator[str]:
    """Yield the tokens of MCP servers that the upstream is to connect to."""
    if _CONNECTORS not in raw.body:
        return
    try:
        body = raw.body.removeprefix(codecs.BOM_UTF8)
        servers = msgspec.json.decode(body, type=_Connectors).mcp_servers
    except (msgspec.MsgspecError, RecursionError):
        return
    for server in servers if isinstance(servers, list) else ():
        match server:
            case {"authorization_token": str(token)}:
                yield token
