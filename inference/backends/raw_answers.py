"""What an upstream says in the Messages API, read on its way to the caller. Pure.

Everything is passed on, whatever it is. Only the model's name is changed, and only what ledger and
trail are made of is read: what cannot be read does not count, and is passed on all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from inference.backends.json_spans import Change, Span, changed, member
from inference.backends.port import Tally
from inference.backends.raw_edits import renamed
from inference.backends.sse_frames import FrameSplitter, data_of, with_data
from inference.backends.upstream_counts import Count, Counts
from inference.backends.upstream_faults import Answered, fault, garbled, unreachable
from inference.backends.upstream_health import UpstreamError
from inference.events import Event, Finished, FinishReason, RawAnswer, RawFrame, Started, Usage

_REASONS = {
    "end_turn": FinishReason.END,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "stop_sequence": FinishReason.STOP_SEQUENCE,
    "tool_use": FinishReason.TOOL_USE,
    "pause_turn": FinishReason.PAUSE,
    "refusal": FinishReason.REFUSAL,
}
# Until an upstream says how many tokens there are, and if it never does: so many are about one.
_CHARS_PER_TOKEN = 4
# Files are no text; what they come to only the upstream knows.
_FILE = re.compile(rb'"data"\s*:\s*"[^"]*"')

# What the counts of a whole request leave out: a summary that the upstream made of what it closed.
_APART = "compaction"

T = TypeVar("T")


class _OutputDetails(Counts):
    thinking_tokens: Count = None


class _Tokens(Counts):
    """The API's four counts, of which none has a token of another's."""

    input_tokens: Count = None
    cache_read_input_tokens: Count = None
    cache_creation_input_tokens: Count = None
    output_tokens: Count = None

    def usage(self) -> Usage:
        """Return the canonical counts, with 0 for what is not said."""
        cached = self.cache_read_input_tokens or 0
        written = self.cache_creation_input_tokens or 0
        return Usage(
            prompt_tokens=(self.input_tokens or 0) + cached + written,
            cached_tokens=cached,
            cache_written_tokens=written,
            output_tokens=self.output_tokens or 0,
        )


class _Iteration(_Tokens):
    """One run of the model; a request may take several."""

    type: str = ""


class _Usage(_Tokens):
    """What the API says of a whole request."""

    output_tokens_details: _OutputDetails | None = None
    iterations: Any = None

    def update(self, later: _Usage) -> None:
        """Take over what is said later: its counts are of all until then."""
        for name in self.__struct_fields__:
            if (value := getattr(later, name)) is not None:
                setattr(self, name, value)

    def read(self, prompt_tokens: int = 0) -> Usage:
        """Return the canonical counts of all that was done.

        `prompt_tokens` is what the prompt is taken to have where nothing is said of it.
        """
        usage = self.usage()
        details = self.output_tokens_details
        usage = msgspec.structs.replace(
            usage,
            prompt_tokens=usage.prompt_tokens or prompt_tokens,
            thinking_tokens=(details.thinking_tokens if details else None) or 0,
        )
        return sum((each.usage() for each in self._apart()), usage)

    def _apart(self) -> Iterator[_Iteration]:
        try:
            iterations = msgspec.convert(self.iterations, list[_Iteration] | None)
        except msgspec.ValidationError:
            return
        yield from (each for each in iterations or () if each.type == _APART)


class _Fault(msgspec.Struct):
    """What an error says; `type` is one of the API's."""

    type: str = ""
    message: str = ""


class _Said(msgspec.Struct):
    """The end of an answer, which a message and the delta of a stream's end both tell."""

    stop_reason: str | None = None
    stop_sequence: str | None = None


class _Message(_Said):
    usage: _Usage | None = None


class _Kind(msgspec.Struct):
    type: str = ""


class _MessageStart(msgspec.Struct):
    message: _Message


class _MessageDelta(msgspec.Struct):
    delta: _Said | None = None
    usage: _Usage | None = None


class _Piece(msgspec.Struct):
    text: str = ""
    thinking: str = ""
    partial_json: str = ""


class _BlockDelta(msgspec.Struct):
    delta: _Piece


class _Error(msgspec.Struct):
    error: _Fault


def about_tokens(body: bytes) -> int:
    """Return about how many tokens the prompt of a request has, without its files."""
    files = sum(len(found[0]) for found in _FILE.finditer(body))
    return (len(body) - files) // _CHARS_PER_TOKEN


def _decoded(data: bytes, kind: type[T]) -> T | None:
    """Return what the data says, or None if it is something else."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _read_message(body: bytes, prompt_tokens: int) -> Finished | None:
    """Return how a whole answer ended, and what it used; None if it is no message.

    Raises `UpstreamError` for an error, which some answer with whatever their status says.
    """
    kind = _decoded(body, _Kind)
    if kind is None:
        return None
    if kind.type == "error":
        raise _fault_of(_decoded(body, _Error))
    message = _decoded(body, _Message) or _Message()
    usage = message.usage or _Usage()
    if usage.output_tokens is None:
        usage.output_tokens = len(body) // _CHARS_PER_TOKEN
    return _finished(message, usage.read(prompt_tokens))


def _read_count(body: bytes) -> Finished | None:
    """Return what the answer of a count says of the prompt; None if it is none."""
    counted = _decoded(body, _Usage)
    if counted is None or counted.input_tokens is None:
        return None
    return _finished(_Said(), counted.read())


def _finished(said: _Said, usage: Usage) -> Finished:
    reason = _REASONS.get(said.stop_reason or "", FinishReason.END)
    return Finished(reason=reason, usage=usage, stop_sequence=said.stop_sequence)


def _fault_of(error: _Error | None) -> UpstreamError:
    said = error.error if error else _Fault()
    return fault(Answered(status=200, kinds=(said.type,), message=said.message))


class WholeAnswer:
    """An answer that comes in one piece, of a message or of a count.

    `tally` is made right; `prompt_tokens` is about how many the prompt has. See
    `inference.backends.upstream` for the rest.
    """

    full = False

    def __init__(self, model: str, tally: Tally, prompt_tokens: int = 0, *, counting: bool) -> None:
        self.begun = False
        self._model = model
        self._tally = tally
        self._prompt_tokens = prompt_tokens
        self._counting = counting
        self._finished: Finished | None = None

    @property
    def whole(self) -> bool:
        """Whether it has come."""
        return self._finished is not None

    def sent(self) -> None:
        """Count the prompt; a count costs nothing."""
        if not self._counting:
            self._tally.prompt_tokens = self._prompt_tokens

    def read(self, data: object) -> Iterator[Event]:
        """Yield the answer. Raises `UpstreamError` if it is none."""
        assert isinstance(data, bytes)
        about = self._prompt_tokens
        finished = _read_count(data) if self._counting else _read_message(data, about)
        if finished is None:
            raise garbled("it is not what the API answers with")
        self._finished = finished
        _note(self._tally, finished.usage)
        self.begun = True
        yield Started(prompt_tokens=finished.usage.prompt_tokens)
        yield RawAnswer(body=_renamed(data, self._model))

    def end(self) -> Iterator[Event]:
        """Yield how it ended."""
        if self._finished is None:
            raise unreachable("it answered nothing")
        yield self._finished


class StreamedAnswer:
    """An answer on its way through. `model` is the name that callers know.

    `tally` is kept right, as far as the upstream tells; `prompt_tokens` is about how many the
    prompt has. See `inference.backends.upstream` for the rest.
    """

    full = False

    def __init__(self, model: str, tally: Tally, prompt_tokens: int = 0) -> None:
        self.begun = False
        self._model = model
        self._tally = tally
        self._prompt_tokens = prompt_tokens
        self._splitter = FrameSplitter()
        self._usage = _Usage()
        self._said = _Said()
        self._characters = 0
        self._started = False
        self._ended = False
        self._fault: UpstreamError | None = None

    @property
    def whole(self) -> bool:
        """Whether its last frame has come."""
        return self._ended and self._fault is None

    def sent(self) -> None:
        """Count the prompt."""
        self._tally.prompt_tokens = self._prompt_tokens

    def read(self, data: object) -> Iterator[Event]:
        """Yield what the next piece of the stream makes whole.

        Raises `UpstreamError` behind an error, which ends the stream.
        """
        assert isinstance(data, bytes)
        told = self._started
        frames = [self._read(frame) for frame in self._splitter.feed(data)]
        if self._started and not told:
            yield Started(prompt_tokens=self._tally.prompt_tokens)
        if frames:
            self.begun = True
            yield RawFrame(b"".join(frames), last=self._ended)
        if self._fault is not None:
            raise self._fault

    def end(self) -> Iterator[Event]:
        """Yield how the answer ended. Raises `UpstreamError` if it did not."""
        if not self._ended:
            raise unreachable("it broke off its answer")
        yield _finished(self._said, self._usage.read(self._prompt_tokens))

    def _read(self, frame: bytes) -> bytes:
        """Take note of a frame, and return it as it is to be passed on."""
        data = data_of(frame)
        kind = _decoded(data, _Kind)
        match kind and kind.type:
            case "content_block_delta":
                self._grow(data)
            case "message_start":
                return self._start(frame, data)
            case "message_delta":
                self._near_end(data)
            case "message_stop":
                self._ended = True
            case "error":
                self._ended = True
                self._fault = _fault_of(_decoded(data, _Error))
        return frame

    def _start(self, frame: bytes, data: bytes) -> bytes:
        self._started = True
        if start := _decoded(data, _MessageStart):
            self._count(start.message.usage)
        where = _message_in(data)
        if where is None or data[where.start : where.start + 1] != b"{":
            return frame
        message = _renamed(data[where.start : where.end], self._model)
        return with_data(frame, changed(data, [Change(where, message)]))

    def _grow(self, data: bytes) -> None:
        if said := _decoded(data, _BlockDelta):
            piece = said.delta
            self._characters += len(piece.text) + len(piece.thinking) + len(piece.partial_json)
            about = -(-self._characters // _CHARS_PER_TOKEN)
            self._tally.output_tokens = max(self._tally.output_tokens, about)

    def _near_end(self, data: bytes) -> None:
        said = _decoded(data, _MessageDelta) or _MessageDelta()
        self._said = said.delta or self._said
        if said.usage is None or said.usage.output_tokens is None:
            # What was estimated has to do.
            self._usage.output_tokens = self._tally.output_tokens
        self._count(said.usage)

    def _count(self, usage: _Usage | None) -> None:
        if usage is not None:
            self._usage.update(usage)
            _note(self._tally, self._usage.read(self._prompt_tokens))


def _message_in(data: bytes) -> Span | None:
    try:
        return member(data, "message")
    except ValueError as error:
        raise garbled(str(error)) from None


def _renamed(message: bytes, model: str) -> bytes:
    try:
        return renamed(message, model)
    except ValueError as error:
        raise garbled(str(error)) from None


def _note(tally: Tally, usage: Usage) -> None:
    tally.prompt_tokens = usage.prompt_tokens
    tally.cached_tokens = usage.cached_tokens
    tally.cache_written_tokens = usage.cache_written_tokens
    tally.output_tokens = usage.output_tokens
