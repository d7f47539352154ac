"""One request as the gateway sees it: the events that have come, and what to make of the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from enum import Enum, auto

from inference.errors import ErrorCode
from inference.events import Event, Failed, Finished, Started
from inference.fold import Parts
from inference.request import GenerationRequest
from inference.transport.frames import Accepted, Frame

# An engine that dies again and again under one request is probably killed by it.
MAX_ATTEMPTS = 3


class Verdict(Enum):
    """What the dispatcher must do after a frame."""

    NOTHING = auto()
    RETRY = auto()
    CANCEL_SENDER = auto()
    ENDED = auto()


class Bell:
    """Lets one task wait until something has come, from any of those who ring."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait for the next ring."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def ring(self) -> None:
        """Let the waiting task go on, if there is one."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Run:
    """The events of one request, across the attempts at it, in order and without a repeat.

    `on_close` is called once, when the caller stops listening before the end. Times are those of
    `time.monotonic`, in seconds; `end` stays None when the caller left early. `answer` holds what
    has come of the answer, in `deltas` pieces; `prompt_tokens` is known once an engine has said so.
    Who waits for several runs at once gives them one `bell`.
    """

    def __init__(
        self,
        request: GenerationRequest,
        queue: str,
        on_close: Callable[[Run], None],
        bell: Bell | None = None,
    ) -> None:
        self.request = request
        self.queue = queue
        self.attempt = 0
        self.engine_id: str | None = None
        self.entry_id: bytes | None = None
        self.ended = False
        self.created_s = time.monotonic()
        self.first_text_s: float | None = None
        self.ended_s: float | None = None
        self.end: Finished | Failed | None = None
        self.prompt_tokens: int | None = None
        self.answer = Parts()
        self.deltas = 0
        self.timers: list[asyncio.TimerHandle] = []
        self._next_seq = 0
        self._events: list[Event] = []
        self._bell = bell or Bell()
        self._on_close = on_close

    @property
    def request_id(self) -> str:
        """The id of the request."""
        return self.request.id

    @property
    def text_sent(self) -> bool:
        """Whether the caller has seen any of the answer."""
        return self.first_text_s is not None

    async def next(self) -> list[Event]:
        """Return every event that has come since the last call, waiting for one or for `wake`."""
        if not self._events:
            await self._bell.wait()
        return self.take()

    async def settled(self) -> None:
        """Wait until the answer has begun or the run has ended. What has come stays for `next`."""
        while not (self.text_sent or self.ended):
            await self._bell.wait()

    def take(self) -> list[Event]:
        """Return every event that has come since the last call, without waiting."""
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        """Let a waiting `next` return, with nothing if nothing has come."""
        self._bell.ring()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield the events one by one, to the end of the run."""
        while True:
            for event in await self.next():
                yield event
                if isinstance(event, Finished | Failed):
                    return

    def close(self) -> None:
        """Stop listening. A run that has not ended is cancelled in the engine."""
        if not self.ended:
            self.ended = True
            self._on_close(self)

    def give_up(self, failed: Failed) -> None:
        """End the run because another that belongs to it has failed; the engine stops too."""
        if not self.ended:
            self._on_close(self)
            self._end(failed)

    def fail(self, code: ErrorCode, message: str) -> None:
        """End the run from the gateway's side."""
        if not self.ended:
            self._end(Failed(code=code, message=message))

    def next_attempt(self) -> bool:
        """Get ready for another engine, if the caller would not notice. Return whether it can."""
        if self.ended or self.text_sent or self.attempt + 1 >= MAX_ATTEMPTS:
            return False
        self.attempt += 1
        self.engine_id = None
        self.entry_id = None
        self._next_seq = 0
        return True

    def receive(self, frame: Frame) -> Verdict:
        """Take one frame of this request, from whichever engine and attempt it comes."""
        if frame.attempt != self.attempt or self.engine_id not in (None, frame.engine_id):
            # A second engine has taken what another one has: it must stop.
            return Verdict.CANCEL_SENDER if frame.seq == 0 else Verdict.NOTHING
        if frame.seq < self._next_seq:
            # A write that was repeated because its acknowledgement was lost.
            return Verdict.NOTHING
        if frame.seq > self._next_seq:
            return self._gap(frame)
        self.engine_id = frame.engine_id
        self._next_seq += 1
        return self._take(frame.body)

    def _gap(self, frame: Frame) -> Verdict:
        """A frame is missing. Text must never have a hole; without text, start again."""
        if self.engine_id is None and isinstance(frame.body, Failed):
            # The engine took the request but could not confirm it: it still is in the queue.
            return Verdict.NOTHING
        if not self.text_sent:
            return Verdict.RETRY
        self.fail(ErrorCode.ENGINE_LOST, "part of the answer was lost on its way")
        return Verdict.CANCEL_SENDER

    def _take(self, body: Accepted | Event) -> Verdict:
        match body:
            case Accepted():
                return Verdict.NOTHING
            case Started():
                if self.prompt_tokens is None:
                    self.prompt_tokens = body.prompt_tokens
                    self._push(body)
                return Verdict.NOTHING
            case Failed(code=ErrorCode.ENGINE_FAILED | ErrorCode.ENGINE_LOST) if not self.text_sent:
                # The engine is going down; another may still serve the request unnoticed.
                return Verdict.RETRY
            case Finished() | Failed():
                self._end(body)
                return Verdict.ENDED
            case _:
                if self.first_text_s is None:
                    self.first_text_s = time.monotonic()
                self.answer.add(body)
                self.deltas += 1
                self._push(body)
                return Verdict.NOTHING

    def _end(self, event: Finished | Failed) -> None:
        self._push(event)
        self.ended = True
        self.end = event
        self.ended_s = time.monotonic()

    def _push(self, event: Event) -> None:
        self._events.append(event)
        self.wake()
