"""The direct arm: the scripted engine answered by the least ASGI application that can.

It plays the same scripts as Tandem and sends the same frames, Messages' or Chat's, from the same
server with the same collector, but has no key, no checks, no queue, no second process. What Tandem
takes beyond it is what the path costs. It is also the upstream of proxies.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import django
import msgspec

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
django.setup()

from gateway.dialects.anthropic.encode import MessageStream  # noqa: E402
from gateway.dialects.chat.encode import ChunkStream, Shape  # noqa: E402
from gateway.serving.choices import Chosen  # noqa: E402
from inference.backends.registry import build_backend  # noqa: E402
from inference.catalogue import ModelEntry  # noqa: E402
from inference.collector import tune_collector  # noqa: E402
from inference.events import Event, Finished  # noqa: E402
from inference.request import GenerationRequest, Message, Role, Sampling, TextPart  # noqa: E402

_MODEL = "direct"
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]


class _Body(msgspec.Struct):
    max_tokens: int
    messages: list[dict[str, str]]


_decode = msgspec.json.Decoder(_Body).decode


class Direct:
    """Answers every request with the script in its last message."""

    def __init__(self) -> None:
        entry = ModelEntry(
            id=_MODEL,
            display_name="",
            aliases=(),
            backend="scripted",
            weights="",
            context_tokens=100_000,
            capacity=1024,
            max_waiting=0,
            workers=1,
            engine_options={},
            canary_prompt="",
            canary_expect="",
            created_at=datetime.datetime.now(datetime.UTC),
        )
        self._backend = build_backend(entry, Path())
        self._started = False

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer one HTTP request: a GET, which only asks whether anybody is there, or a script."""
        if not self._started:
            self._started = True
            await self._backend.start()
            tune_collector()
        if scope["method"] == "GET":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        raw = b""
        more = True
        while more:
            message = await receive()
            raw += message.get("body", b"")
            more = message.get("more_body", False)
        feed = _messages() if scope["path"] == "/v1/messages" else _chunks()
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        async for event in self._backend.generate(_request(_decode(raw))):
            over = isinstance(event, Finished)
            frame = {"body": feed(event), "more_body": not over}
            await send({"type": "http.response.body", **frame})


def _messages() -> Callable[[Event], bytes]:
    return MessageStream("msg_direct", _MODEL, "req_direct").feed


def _chunks() -> Callable[[Event], bytes]:
    shape = Shape(
        completion_id="chatcmpl-direct", model=_MODEL, created_s=int(time.time()), usage=True
    )
    stream = ChunkStream(shape)
    return lambda event: stream.feed(Chosen(0, event))


def _request(body: _Body) -> GenerationRequest:
    text = body.messages[-1]["content"]
    return GenerationRequest(
        id=os.urandom(8).hex(),
        model=_MODEL,
        messages=(Message(role=Role.USER, parts=(TextPart(text),)),),
        sampling=Sampling(max_tokens=body.max_tokens),
        deadline_s=time.time() + 600,
    )


application = Direct()
