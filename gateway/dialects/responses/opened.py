"""Items of an answer while they are being made, and the events that tell of them."""

from __future__ import annotations

from typing import Any, Protocol

from gateway.dialects.responses.items import (
    Item,
    begun_message,
    begun_reasoning,
    call_item,
    mcp_item,
    message_item,
    reasoning_item,
    text_part,
    token_logprob,
)
from inference.events import ServerToolCall, ServerToolResult, TokenLogprob, ToolCallStarted
from inference.request import ServerToolCallPart, ServerToolResultPart, ToolCallPart

EventsOut = list[tuple[str, dict[str, Any]]]
"""Events as their types and their fields, without numbers."""


class OpenItem(Protocol):
    """An item that is being made; `delta` is the type and the fields of its every delta."""

    delta: tuple[str, dict[str, Any]]

    def begin(self) -> EventsOut:
        """Return the events before the first delta."""

    def add(self, text: str) -> None:
        """Take the next piece."""

    def item(self, status: str) -> Item:
        """Return the item as far as it has come."""

    def end(self, status: str) -> EventsOut:
        """Return the events after the last delta."""


def _added(index: int, item: Item) -> tuple[str, dict[str, Any]]:
    return "response.output_item.added", {"output_index": index, "item": item}


def _done(index: int, item: Item) -> tuple[str, dict[str, Any]]:
    return "response.output_item.done", {"output_index": index, "item": item}


class OpenMessage:
    """A piece of the answer's text."""

    def __init__(self, response_id: str, index: int) -> None:
        self._response_id = response_id
        self._index = index
        self._pieces: list[str] = []
        self._scores: list[TokenLogprob] = []
        self._begun = begun_message(response_id, index)
        self._place = {"item_id": self._begun["id"], "output_index": index, "content_index": 0}
        self.delta = ("response.output_text.delta", {**self._place, "logprobs": []})

    def begin(self) -> EventsOut:
        """Return the events before the first delta."""
        part = {**self._place, "part": text_part("")}
        return [_added(self._index, self._begun), ("response.content_part.added", part)]

    def add(self, text: str) -> None:
        """Take the next piece."""
        self._pieces.append(text)

    def score(self, logprobs: tuple[TokenLogprob, ...]) -> dict[str, Any]:
        """Take a piece's log probabilities and return its delta's fields."""
        self._scores += logprobs
        return {**self._place, "logprobs": [token_logprob(each) for each in logprobs]}

    def item(self, status: str) -> Item:
        """Return the item as far as it has come."""
        text = "".join(self._pieces)
        item = message_item(self._response_id, self._index, text, self._scores)
        return item | {"status": status}

    def end(self, status: str) -> EventsOut:
        """Return the events after the last delta."""
        item = self.item(status)
        part = item["content"][0]
        told = {"text": part["text"], "logprobs": part["logprobs"]}
        return [
            ("response.output_text.done", {**self._place, **told}),
            ("response.content_part.done", {**self._place, "part": part}),
            _done(self._index, item),
        ]


class OpenReasoning:
    """A piece of reasoning: as its own summary, or as it is."""

    def __init__(self, response_id: str, index: int, *, summary: bool) -> None:
        self._response_id = response_id
        self._index = index
        self._summary = summary
        self._pieces: list[str] = []
        self._begun = begun_reasoning(response_id, index)
        number = "summary_index" if summary else "content_index"
        self._place = {"item_id": self._begun["id"], "output_index": index, number: 0}
        self._kind = "summary_text" if summary else "reasoning_text"
        self._part_event = "reasoning_summary_part" if summary else "content_part"
        self._text_event = "reasoning_summary_text" if summary else "reasoning_text"
        self.delta = (f"response.{self._text_event}.delta", self._place)

    def begin(self) -> EventsOut:
        """Return the events before the first delta."""
        part = {**self._place, "part": {"type": self._kind, "text": ""}}
        return [_added(self._index, self._begun), (f"response.{self._part_event}.added", part)]

    def add(self, text: str) -> None:
        """Take the next piece."""
        self._pieces.append(text)

    def item(self, status: str) -> Item:
        """Return the item as far as it has come."""
        text = "".join(self._pieces)
        item = reasoning_item(self._response_id, self._index, text, summary=self._summary)
        return item | {"status": status}

    def end(self, status: str) -> EventsOut:
        """Return the events after the last delta."""
        text = "".join(self._pieces)
        part = {"type": self._kind, "text": text}
        return [
            (f"response.{self._text_event}.done", {**self._place, "text": text}),
            (f"response.{self._part_event}.done", {**self._place, "part": part}),
            _done(self._index, self.item(status)),
        ]


class OpenCall:
    """A call of a tool."""

    def __init__(self, response_id: str, index: int, started: ToolCallStarted) -> None:
        self._response_id = response_id
        self._index = index
        self._started = started
        self._pieces: list[str] = []
        self._place = {"item_id": self.item("")["id"], "output_index": index}
        self.delta = ("response.function_call_arguments.delta", self._place)

    def begin(self) -> EventsOut:
        """Return the events before the first delta."""
        return [_added(self._index, self.item("in_progress"))]

    def add(self, text: str) -> None:
        """Take the next piece of the arguments."""
        self._pieces.append(text)

    def item(self, status: str) -> Item:
        """Return the item as far as it has come."""
        call = ToolCallPart(
            id=self._started.id, name=self._started.name, arguments="".join(self._pieces)
        )
        return call_item(self._response_id, self._index, call) | {"status": status}

    def end(self, status: str) -> EventsOut:
        """Return the events after the last delta. A call without arguments has none, as JSON."""
        events: EventsOut = []
        if not self._pieces:
            kind, place = self.delta
            self.add("{}")
            events.append((kind, {**place, "delta": "{}"}))
        item = self.item(status)
        told = {"name": item["name"], "arguments": item["arguments"]}
        return [
            *events,
            ("response.function_call_arguments.done", {**self._place, **told}),
            _done(self._index, item),
        ]


class OpenServerCall:
    """A call that the server runs. Its arguments are whole from the start."""

    def __init__(self, response_id: str, index: int, called: ServerToolCall) -> None:
        self._response_id = response_id
        self._index = index
        self._call = ServerToolCallPart(
            id=called.id, server=called.server, name=called.name, arguments=called.arguments
        )
        self._result: ServerToolResultPart | None = None
        self._place = {"item_id": self.item("")["id"], "output_index": index}
        self.delta = ("response.mcp_call_arguments.delta", self._place)

    def begin(self) -> EventsOut:
        """Return the events that there are before the tool has run."""
        kind, place = self.delta
        arguments = self._call.arguments
        begun = self.item("in_progress") | {"arguments": ""}
        return [
            _added(self._index, begun),
            ("response.mcp_call.in_progress", place),
            (kind, {**place, "delta": arguments}),
            ("response.mcp_call_arguments.done", {**place, "arguments": arguments}),
        ]

    def add(self, text: str) -> None:
        """Nothing is added to it."""
        raise AssertionError("its arguments are whole")

    def take(self, result: ServerToolResult) -> None:
        """Take what it came to."""
        self._result = ServerToolResultPart(
            call_id=result.call_id, text=result.text, is_error=result.is_error
        )

    def item(self, status: str) -> Item:
        """Return the item as far as it has come. Once the tool has run, it has its own status."""
        item = mcp_item(self._response_id, self._index, self._call, self._result)
        return item if self._result else item | {"status": status}

    def end(self, status: str) -> EventsOut:
        """Return the events after the tool has run."""
        item = self.item(status)
        kind = "response.mcp_call.completed"
        if item["status"] == "failed":
            kind = "response.mcp_call.failed"
        return [(kind, self._place), _done(self._index, item)]
