"""The bare arm: Tandem's own gateway, with everybody let in and nothing written down.

The path to the engine is the same; what is left out is the look at the key, limits, caps and
balance, and every record of the request, the engine's included.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.asgi import application
from gateway.http.consumer import ApiConsumer
from gateway.keys import Principal
from gateway.serving.answers import AnswerConsumer
from inference.request import GenerationRequest
from inference.transport.dispatcher import Dispatcher
from inference.transport.run import Run

_ANYBODY = Principal(key_id="", key_name="", team_id=1, team_name="")


class _Ticket:
    headers: tuple[()] = ()

    def close(self, run: Run) -> None:
        pass


async def _authenticate(self: ApiConsumer) -> Principal:
    return _ANYBODY


async def _admit(self: Any, *_: Any) -> _Ticket:
    return _Ticket()


_submit = Dispatcher.submit


async def _submit_unowned(self: Dispatcher, request: GenerationRequest, **options: Any) -> Run:
    return await _submit(self, msgspec.structs.replace(request, owner=None), **options)


ApiConsumer._authenticate = _authenticate  # type: ignore[method-assign]
AnswerConsumer.admit = _admit  # type: ignore[assignment, method-assign]
Dispatcher.submit = _submit_unowned  # type: ignore[method-assign]
__all__ = ["application"]
