"""Items of an answer while they are being made, and the events that tell of them."""

from __future__ import annotations

from typing import Any, Protocol

from gateway.dialects.responses.items import (
    Item,
    begun_message,
    begun_reasoning,
    call_item,
    message_item,
    reasoning_item,
    text_part,
    token_logprob,
)
from inference.events import TokenLogprob, ToolCallStarted
from inference.request import ToolCallPart

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
