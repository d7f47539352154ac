"""From the chunks of a streamed chat completion to events. Pure.

Servers of this dialect agree on less than it seems: what of a chunk is missing, null or in another
place than OpenAI has it is read as far as it can be understood, and what is not known passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from inference.backends.answers import Blocks, CallPiece, FunctionPiece, OutputPiece
from inference.backends.call_order import CallOrder
from inference.backends.port import Tally
from inference.backends.stops import StopFilter
from inference.backends.upstream_counts import Count, Counts
from inference.backends.upstream_faults import garbled, unreachable
from inference.backends.upstream_prompt import TokenEstimate, estimated_prompt_tokens
from inference.backends.whole_text import mended
from inference.events import (
    Delta,
    Event,
    Finished,
    FinishReason,
    Likely,
    Started,
    TextDelta,
    TokenLogprob,
)
from inference.request import GenerationRequest

_LENGTH = ("length", "max_tokens", "model_length")

_Byte = Annotated[int, msgspec.Meta(ge=0, le=255)]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Token(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[_Byte] | None = None
    top_logprobs: list[_Token] | None = None


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None
    stop_reason: Any = None
    logprobs: _Logprobs | None = None


class _PromptDetails(Counts):
    cached_tokens: Count = None


class _OutputDetails(Counts):
    reasoning_tokens: Count = None


class _Usage(Counts):
    prompt_tokens: Count = None
    completion_tokens: Count = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


class ChatAnswer:
    """Reads the chunks of one answer.

    See `inference.backends.upstream` for what it has to do.
    """

    def __init__(self, request: GenerationRequest, tally: Tally) -> None:
        self.begun = False
        self._request = request
        self._tally = tally
        self._estimate = TokenEstimate(tally)
        self._stops = StopFilter(request.sampling.stop)
        self._blocks = Blocks(one_call=not request.tool_choice.parallel)
        self._order = CallOrder(self._blocks)
        self._calls = _CallNumbers()
        self._scores: list[TokenLogprob] = []
        self._finish: str | None = None
        self._stop_sequence: str | None = None
        self._has_ended = False
        self._is_counted = False
        self._thinking_tokens = 0

    @property
    def full(self) -> bool:
        """Whether a stop text was found, or a call more than was wanted has begun."""
        return self._stops.matched is not None or self._blocks.full

    @property
    def whole(self) -> bool:
        """Whether the upstream has said why it ended, or what it used."""
        return self._finish is not None or self._has_ended

    def sent(self) -> None:
        """Count the prompt."""
        if not self._tally.prompt_tokens:
            self._tally.prompt_tokens = estimated_prompt_tokens(self._request)

    def read(self, data: object) -> Iterator[Event]:
        """Yield the events of one chunk. Raises `UpstreamError` if it is none."""
        try:
            chunk = msgspec.convert(data, _Chunk, strict=False)
        except msgspec.ValidationError as error:
            raise garbled(str(error)) from None
        choices = chunk.choices or []
        if chunk.usage is not None:
            self._note(chunk.usage)
            # Of its own, it is the last of an answer.
            self._has_ended = self._has_ended or (self.begun and not choices)
        if not self.begun and choices:
            self.begun = True
            yield Started(prompt_tokens=self._tally.prompt_tokens)
        for choice in choices:
            if not choice.index and not self.full:
                yield from self._read_choice(choice)

    def end(self) -> Iterator[Event]:
        """Yield the last events. Raises `UpstreamError` if the answer is not whole."""
        if not self.begun:
            raise garbled("it is empty")
        if not (self.whole or self.full):
            raise unreachable("it broke the answer off", passing=False)
        if held := self._stops.flush():
            yield from self._scored(self._blocks.add_text(held))
        yield from self._scored(self._order.end())
        yield from self._scored(self._blocks.end())
        usage = msgspec.structs.replace(self._tally.usage, thinking_tokens=self._thinking_tokens)
        yield Finished(reason=self._reason(), usage=usage, stop_sequence=self._matched())

    def _matched(self) -> str | None:
        return self._stops.matched or self._stop_sequence

    def _reason(self) -> FinishReason:
        if self._matched() is not None:
            return FinishReason.STOP_SEQUENCE
        if self._finish in _LENGTH:
            return FinishReason.LENGTH
        if self._finish == "content_filter":
            return FinishReason.REFUSAL
        # Some say `stop` after calls too.
        return FinishReason.TOOL_USE if self._blocks.called else FinishReason.END

    def _read_choice(self, choice: _Choice) -> Iterator[Delta]:
        sampling = self._request.sampling
        if sampling.logprobs is not None and choice.logprobs is not None:
            self._scores += map(_scored_token, choice.logprobs.content or ())
        if choice.delta is not None:
            yield from self._scored(self._read_delta(choice.delta))
        self._finish = choice.finish_reason or self._finish
        if choice.stop_reason in sampling.stop:
            # vLLM's; it may also be the number of a token.
            self._stop_sequence = choice.stop_reason

    def _read_delta(self, delta: _Delta) -> Iterator[Delta]:
        thought, text = _texts(delta)
        calls = [self._parsed(call) for call in delta.tool_calls or ()]
        self._count(thought)
        self._count(text)
        shown = self._stops.push(text)
        if calls:
            shown += self._stops.flush()
        yield from self._blocks.add(OutputPiece(thought, shown))
        for call in calls:
            yield from self._order.add(call)

    def _parsed(self, call: _ToolCall) -> CallPiece:
        function = call.function or _Function()
        arguments = function.arguments
        if arguments is not None and not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        self._count(f"{function.name or ''}{arguments or ''}")
        number = self._calls.number(call.index, call.id, function.name)
        return CallPiece(number, FunctionPiece(function.name, arguments))

    def _scored(self, deltas: Iterator[Delta]) -> Iterator[Delta]:
        """Give the next piece of text the log probabilities that have come since the last."""
        for delta in deltas:
            if isinstance(delta, TextDelta) and self._scores:
                scores, self._scores = tuple(self._scores), []
                yield TextDelta(delta.text, scores)
            else:
                yield delta

    def _count(self, text: str) -> None:
        if not self._is_counted:
            self._estimate.add(text)

    def _note(self, usage: _Usage) -> None:
        """Take the counts that are there. Some tell of them in every chunk, of all until then."""
        if prompt := usage.prompt_tokens:
            details = usage.prompt_tokens_details or _PromptDetails()
            self._tally.prompt_tokens = prompt
            self._tally.cached_tokens = _within(details.cached_tokens, prompt)
        if output := usage.completion_tokens:
            thinking = (usage.completion_tokens_details or _OutputDetails()).reasoning_tokens
            self._is_counted = True
            self._tally.output_tokens = output
            self._thinking_tokens = _within(thinking, output)


class _CallNumbers:
    """Tells calls apart: by id, or by index where pieces have none or ever new ones.

    A name begins a call, unless it comes again.
    """

    def __init__(self) -> None:
        self._number = -1
        self._by_id: dict[str, int] = {}
        self._by_index: dict[int, int] = {}

    def number(self, index: int | None, call_id: str | None, name: str | None) -> int:
        """Return which call a piece belongs to, counted from 0."""
        known = self._by_id.get(call_id or "")
        if known is None and not (call_id and name):
            known = None if index is None else self._by_index.get(index)
        if known is None and (name or self._number < 0):
            known = self._number = self._number + 1
            if call_id:
                self._by_id[call_id] = known
            if index is not None:
                self._by_index[index] = known
        return self._number if known is None else known


def _texts(delta: _Delta) -> tuple[str, str]:
    """Return the reasoning and the text of a piece, each empty if there is none."""
    names = (delta.reasoning_content, delta.reasoning)
    thought = next((text for text in names if isinstance(text, str) and text), "")
    content = delta.content
    if isinstance(content, list):
        # Mistral's: parts, of which some are thoughts.
        parts = [part for part in content if isinstance(part, dict)]
        thought += "".join(_part_text(part.get("thinking")) for part in parts)
        content = "".join(_part_text(part.get("text")) for part in parts)
    text = content if isinstance(content, str) else ""
    return thought, text or delta.refusal or ""


def _part_text(value: object) -> str:
    if isinstance(value, list):
        return "".join(_part_text(part.get("text")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def _scored_token(token: _Token) -> TokenLogprob:
    return TokenLogprob(_likely(token), tuple(map(_likely, token.top_logprobs or ())))


def _likely(token: _Token) -> Likely:
    text = mended(token.token)
    data = text.encode() if token.bytes is None else bytes(token.bytes)
    return Likely(text, token.logprob, data)


def _within(count: int | None, whole: int) -> int:
    return min(count or 0, whole)
