"""From the events of a streamed message of Anthropic's API to events. Pure.

Other servers of this dialect leave things out: what is missing is done without where that is
possible, and what is not known passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from inference.backends.answers import Blocks, CallPiece, FunctionPiece, OutputPiece
from inference.backends.call_order import CallOrder
from inference.backends.port import Tally
from inference.backends.upstream_counts import Count, Counts
from inference.backends.upstream_faults import garbled, unreachable
from inference.backends.upstream_prompt import TokenEstimate, estimated_prompt_tokens
from inference.events import Delta, Event, Finished, FinishReason, Started
from inference.request import GenerationRequest

_REASONS = {
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "stop_sequence": FinishReason.STOP_SEQUENCE,
    "tool_use": FinishReason.TOOL_USE,
    "refusal": FinishReason.REFUSAL,
}


class _OutputDetails(Counts):
    thinking_tokens: Count = None


class _Usage(Counts):
    input_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_read_input_tokens: Count = None
    output_tokens: Count = None
    output_tokens_details: _OutputDetails | None = None


_PROMPT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_ALL = (*_PROMPT, "output_tokens", "output_tokens_details")


class _Message(msgspec.Struct):
    usage: _Usage | None = None


class _Block(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    name: str | None = None
    input: Any = None


class _BlockDelta(msgspec.Struct):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


class _StreamEvent(msgspec.Struct):
    type: str = ""
    index: int | None = None
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _BlockDelta | None = None
    usage: _Usage | None = None


class MessageAnswer:
    """Reads the events of one answer. See `inference.backends.upstream` for what it has to do."""

    def __init__(self, request: GenerationRequest, tally: Tally) -> None:
        self.begun = False
        self._tally = tally
        self._estimate = TokenEstimate(tally)
        self._request = request
        self._blocks = Blocks(one_call=not request.tool_choice.parallel)
        self._order = CallOrder(self._blocks)
        # The numbers of calls by the index of their block, and the arguments of those of which no
        # piece has come: they were there at the beginning.
        self._calls: dict[int | None, int] = {}
        self._called = 0
        self._inputs: dict[int, str] = {}
        self._usage = _Usage()
        self.whole = False
        self._stop_reason: str | None = None
        self._stop_sequence: str | None = None

    @property
    def full(self) -> bool:
        """Whether a call more than was wanted has begun."""
        return self._blocks.full

    def sent(self) -> None:
        """Count the prompt."""
        if not self._tally.prompt_tokens:
            self._tally.prompt_tokens = estimated_prompt_tokens(self._request)

    def read(self, data: object) -> Iterator[Event]:
        """Yield what follows from one event. Raises `UpstreamError` if it is none."""
        try:
            event = msgspec.convert(data, _StreamEvent)
        except msgspec.ValidationError as error:
            raise garbled(str(error)) from None
        match event:
            case _StreamEvent(type="message_start"):
                yield from self._start(event.message or _Message())
            case _StreamEvent(type="content_block_start", content_block=_Block() as block):
                yield from self._open(event.index, block)
            case _StreamEvent(type="content_block_delta", delta=_BlockDelta() as delta):
                yield from self._piece(event.index, delta)
            case _StreamEvent(type="content_block_stop"):
                yield from self._close(self._calls.get(event.index))
            case _StreamEvent(type="message_delta"):
                self._finish(event)
            case _StreamEvent(type="message_stop"):
                self.whole = True

    def end(self) -> Iterator[Event]:
        """Yield the last events. Raises `UpstreamError` if the answer is not whole."""
        if not self.begun:
            raise garbled("it is empty")
        if not (self.whole or self.full):
            raise unreachable("it broke the answer off", passing=False)
        for number in list(self._inputs):
            yield from self._close(number)
        yield from self._order.end()
        yield from self._blocks.end()
        details = self._usage.output_tokens_details or _OutputDetails()
        usage = msgspec.structs.replace(
            self._tally.usage,
            thinking_tokens=_within(details.thinking_tokens, self._tally.output_tokens),
        )
        yield Finished(reason=self._reason(), usage=usage, stop_sequence=self._stop_sequence)

    def _reason(self) -> FinishReason:
        if self._stop_reason in _REASONS:
            return _REASONS[self._stop_reason]
        return FinishReason.TOOL_USE if self._blocks.called else FinishReason.END

    def _start(self, message: _Message) -> Iterator[Event]:
        self.begun = True
        self._note(message.usage or _Usage())
        yield Started(prompt_tokens=self._tally.prompt_tokens)

    def _open(self, index: int | None, block: _Block) -> Iterator[Delta]:
        if block.type == "tool_use":
            number = self._calls[index] = self._called
            self._called += 1
            self._inputs[number] = msgspec.json.encode(block.input or {}).decode()
            self._estimate.add(block.name or "")
            yield from self._add_call(number, block.name, None)
        else:
            yield from self._add(block.thinking, block.text)

    def _piece(self, index: int | None, delta: _BlockDelta) -> Iterator[Delta]:
        if delta.partial_json:
            number = self._calls.get(index, self._called - 1)
            self._inputs.pop(number, None)
            self._estimate.add(delta.partial_json)
            yield from self._add_call(number, None, delta.partial_json)
        else:
            yield from self._add(delta.thinking, delta.text)

    def _close(self, number: int | None) -> Iterator[Delta]:
        if number is not None and (written := self._inputs.pop(number, "")):
            self._estimate.add(written)
            yield from self._add_call(number, None, written)

    def _add(self, thought: str | None, text: str | None) -> Iterator[Delta]:
        self._estimate.add(thought or "")
        self._estimate.add(text or "")
        return self._blocks.add(OutputPiece(reasoning=thought, content=text))

    def _add_call(self, number: int, name: str | None, arguments: str | None) -> Iterator[Delta]:
        return self._order.add(CallPiece(number, FunctionPiece(name, arguments)))

    def _finish(self, event: _StreamEvent) -> None:
        delta = event.delta or _BlockDelta()
        self.whole = self.whole or delta.stop_reason is not None
        self._stop_reason = delta.stop_reason or self._stop_reason
        self._stop_sequence = delta.stop_sequence or self._stop_sequence
        if event.usage is not None:
            self._note(event.usage)
            if event.usage.output_tokens is not None:
                self._tally.output_tokens = event.usage.output_tokens

    def _note(self, usage: _Usage) -> None:
        """Take the counts that are there: each is the whole so far, and none is told twice.

        All of a prompt's at once, for what was input at first may be told as cached later. Nothing
        but zeros is what those say at the end who do not know.
        """
        told = {name: value for name in _ALL if (value := getattr(usage, name)) is not None}
        if not any(told.get(name) for name in _PROMPT):
            told = {name: value for name, value in told.items() if name not in _PROMPT}
        self._usage = msgspec.structs.replace(self._usage, **told)
        known = self._usage
        cached = known.cache_read_input_tokens or 0
        written = known.cache_creation_input_tokens or 0
        if prompt := (known.input_tokens or 0) + cached + written:
            self._tally.prompt_tokens = prompt
            self._tally.cached_tokens = cached
            self._tally.cache_written_tokens = written


def _within(count: int | None, whole: int) -> int:
    return min(count or 0, whole)
