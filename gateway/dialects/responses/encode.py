"""From canonical events to the Responses API's events.

The same canonical events always make the same events with the same numbers, so that a stream can
be resumed by making it again from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gateway.dialects.responses.items import Item, Look
from gateway.dialects.responses.opened import (
    OpenCall,
    OpenItem,
    OpenMessage,
    OpenReasoning,
    OpenServerCall,
)
from gateway.dialects.responses.shape import Shape, render, respond, status_of
from gateway.http.sse import COMMENT, json_line
from inference.errors import ErrorCode, TandemError
from inference.events import (
    Event,
    Failed,
    Finished,
    ServerToolCall,
    ServerToolResult,
    Started,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStarted,
)

__all__ = ["ResponseEncoder", "Shape", "render", "status_of"]


class ResponseEncoder:
    """Makes the events of one response: the same events again whenever it is fed the same.

    `sequence_number` is that of the last event that was made, -1 before the first. Events up to
    `skip_until` are counted and not given out. `clock` tells when the response was completed,
    where its shape does not.

    A background response's first events (`response.created`, `response.queued`) are given out by
    the first `keep_alive` or `feed`, whichever comes first. Any other's come with `Started`, so
    that what fails before can still be an HTTP error.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        skip_until: int = -1,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.sequence_number = -1
        self.over = False
        self._shape = shape
        self._skip_until = skip_until
        self._clock = clock
        self._look = Look.of(shape.body)
        self._created = False
        self._started = False
        self._items: list[Item] = []
        self._open: OpenItem | None = None
        self._delta_head = b""

    def feed(self, event: Event) -> bytes:
        """Return the frames for the next event, empty if it has none.

        A run that another engine took over starts again: only the first start is told.
        """
        match event:
            case TextDelta():
                return self._text(event)
            case ThinkingDelta(text=text):
                return self._thinking(text)
            case ToolCallDelta(arguments=arguments):
                return self._piece(arguments)
            case ToolCallStarted():
                return self._begin(OpenCall(self._shape.id, self._next_index, event))
            case ServerToolCall():
                return self._begin(OpenServerCall(self._shape.id, self._next_index, event))
            case ServerToolResult():
                return self._server_result(event)
            case _:
                return self._around(event)

    def _around(self, event: Event) -> bytes:
        """Return the frames of the beginning and the end."""
        match event:
            case Started():
                return self._start()
            case Finished():
                return self._finish(event)
            case Failed(code=ErrorCode.CANCELLED):
                return self.cancel()
            case Failed(code=code, message=message):
                return self.fail(TandemError(code, message))
        # Raw events are of Messages requests.
        return b""

    def refusal(self, event: Event) -> TandemError | None:
        """Return the error if the very first event says that there will be no answer.

        A background response was acknowledged: its stream tells of its failure.
        """
        if isinstance(event, Failed) and not self._shape.background:
            return TandemError(event.code, event.message)
        return None

    def keep_alive(self, *, begun: bool) -> bytes:
        """Return what a quiet stream is kept alive with."""
        first = self._create() if self._shape.background else b""
        return first or COMMENT

    def fail(self, error: TandemError) -> bytes:
        """Return the frames that end a broken response."""
        return self._end("response.failed", "failed", error=error)

    def cancel(self) -> bytes:
        """Return the frames that end a cancelled response.

        The API has no event of that name: the response in the last one says it.
        """
        return self._end("response.incomplete", "cancelled")

    @property
    def _next_index(self) -> int:
        return len(self._items) + (self._open is not None)

    def _create(self) -> bytes:
        """Tell that there is a response, once."""
        if self._created:
            return b""
        self._created = True
        if not self._shape.background:
            return self._state("response.created", "in_progress")
        return self._state("response.created", "queued") + self._state("response.queued", "queued")

    def _start(self) -> bytes:
        if self._started:
            return b""
        self._started = True
        return self._create() + self._state("response.in_progress", "in_progress")

    def _text(self, delta: TextDelta) -> bytes:
        begun = b""
        opened = self._open
        if not isinstance(opened, OpenMessage):
            opened = OpenMessage(self._shape.id, self._next_index)
            begun = self._begin(opened)
        if not delta.logprobs:
            return begun + self._piece(delta.text)
        opened.add(delta.text)
        scored = opened.score(delta.logprobs) | {"delta": delta.text}
        return begun + self._frame("response.output_text.delta", scored)

    def _thinking(self, text: str) -> bytes:
        if not self._look.reasoning:
            # Not shown, it still parts the text before it from the text after it.
            return self._close("completed")
        begun = b""
        if not isinstance(self._open, OpenReasoning):
            begun = self._begin(
                OpenReasoning(self._shape.id, self._next_index, summary=self._look.summary)
            )
        return begun + self._piece(text)

    def _server_result(self, result: ServerToolResult) -> bytes:
        if not isinstance(self._open, OpenServerCall):
            return b""
        self._open.take(result)
        return self._close("completed")

    def _begin(self, item: OpenItem) -> bytes:
        closed = self._close("completed")
        self._open = item
        kind, fields = item.delta
        # Every token passes here: what its frames share is made once.
        encoded = json_line({"type": kind, **fields})[:-1]
        self._delta_head = b'event: %b\ndata: %b,"delta":' % (kind.encode(), encoded)
        return closed + b"".join(self._frame(*event) for event in item.begin())

    def _piece(self, text: str) -> bytes:
        assert self._open is not None, "a piece of nothing"
        self._open.add(text)
        self.sequence_number += 1
        if self.sequence_number <= self._skip_until:
            return b""
        tail = b',"sequence_number":%d}\n\n' % self.sequence_number
        return self._delta_head + json_line(text) + tail

    def _close(self, status: str) -> bytes:
        if self._open is None:
            return b""
        events = self._open.end(status)
        self._items.append(self._open.item(status))
        self._open = None
        return b"".join(self._frame(*event) for event in events)

    def _finish(self, finished: Finished) -> bytes:
        status = status_of(finished)
        closed = self._close(status)
        if self._shape.completed_at_s is None and self._clock is not None:
            self._shape = replace(self._shape, completed_at_s=self._clock())
        return closed + self._end(f"response.{status}", status, finished=finished)

    def _end(
        self,
        kind: str,
        status: str,
        *,
        finished: Finished | None = None,
        error: TandemError | None = None,
    ) -> bytes:
        self.over = True
        output = list(self._items)
        if self._open is not None:
            output.append(self._open.item("incomplete"))
        response = respond(self._shape, status, output, finished=finished, error=error)
        return self._create() + self._frame(kind, {"response": response})

    def _state(self, kind: str, status: str) -> bytes:
        return self._frame(kind, {"response": respond(self._shape, status)})

    def _frame(self, kind: str, fields: dict[str, Any]) -> bytes:
        self.sequence_number += 1
        if self.sequence_number <= self._skip_until:
            return b""
        numbered = {"type": kind, **fields, "sequence_number": self.sequence_number}
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), json_line(numbered))
