"""An engine that plays a script: for speed tests, and for faults that a real engine rarely shows.

The script comes from the model's `engine_options`. A request can change it for itself: when its
last user message starts with `script:`, the JSON object after it overrides single fields, as in
`script: {"tokens": 64, "token_delay_s": 0.02, "die_at": 5}`.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import signal
from collections.abc import AsyncGenerator, Iterator
from itertools import chain, cycle, islice
from typing import Annotated, Any

import msgspec

from inference.backends.answers import Blocks, CallPiece, FunctionPiece
from inference.backends.limits import allowed_tokens
from inference.backends.marks import marked_prefix
from inference.backends.port import BackendStats, Tally
from inference.backends.schemas import check_size
from inference.backends.stops import StopFilter
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    Likely,
    Started,
    TextDelta,
    ThinkingDelta,
    TokenLogprob,
)
from inference.request import (
    GenerationRequest,
    ImagePart,
    Part,
    Role,
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

_DIRECTIVE = "script:"
_CHARS_PER_TOKEN = 4
_TOKEN = re.compile(r"\s*\S+|\s+$")


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of a tool: its arguments in the pieces that a model would write, each a token."""

    name: str
    arguments: tuple[str, ...] = ("{}",)


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one request plays. A token is a word with the space before it.

    `thinking` comes first, unless the request forbids it, then `text`, then `tool_calls`. `tokens`
    is the length of the text, made by repeating or cutting it; None plays it once. `echo` answers
    with the last user message instead; `echo_results` answers tools' results, once they are there,
    with their text and calls nothing more. `clock` says, as each token of the text, when its step
    was due: the machine's monotonic clock, in seconds. `cached_tokens` is how much of the prompt
    was found in the cache. Delays are in seconds: before `Started`, before the first token, and
    between tokens.
    A fault strikes before the token of that index: `fail_at` ends the run, `hang_at` never goes on,
    `die_at` kills the process.
    """

    thinking: str = ""
    text: str = "All work and no play makes Jack a dull boy."
    tool_calls: tuple[ScriptedCall, ...] = ()
    tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    cached_tokens: int = 0
    echo: bool = False
    echo_results: bool = False
    clock: bool = False
    start_delay_s: float = 0
    first_token_delay_s: float = 0
    token_delay_s: float = 0
    fail_at: int | None = None
    hang_at: int | None = None
    die_at: int | None = None


_Token = str | ThinkingDelta | CallPiece


class ScriptedBackend:
    """Plays scripts. Every stream with the same delay moves in the same step, as in an engine."""

    def __init__(self, entry: ModelEntry) -> None:
        self.capacity = entry.capacity
        self._entry = entry
        self._steps = _StepClock()
        self._running = 0
        self._progress = 0

    async def start(self) -> None:
        """Check the script. Raises `TandemError` when it is no script."""
        try:
            msgspec.convert(self._entry.engine_options, Script)
        except msgspec.ValidationError as error:
            raise TandemError(
                ErrorCode.ENGINE_FAILED, f"bad script of {self._entry.id}: {error}"
            ) from None

    async def generate(
        self, request: GenerationRequest, tally: Tally | None = None
    ) -> AsyncGenerator[Event]:
        """Play one request, as the port says."""
        self._running += 1
        tally = tally or Tally()
        try:
            script = self._script(request)
            prompt_tokens = _count(request)
            max_tokens = allowed_tokens(
                prompt_tokens=prompt_tokens,
                sampling=request.sampling,
                context_tokens=self._entry.context_tokens,
            )
            if script.start_delay_s:
                await asyncio.sleep(script.start_delay_s)
            tally.prompt_tokens = prompt_tokens
            tally.cached_tokens = min(script.cached_tokens, prompt_tokens)
            yield Started(prompt_tokens=prompt_tokens)
            async for event in self._play(script, request, tally, max_tokens):
                yield event
        except TandemError as error:
            yield Failed(code=error.code, message=error.message)
        finally:
            self._running -= 1

    async def count(self, request: GenerationRequest) -> int:
        """Count the prompt's tokens, as the port says."""
        return _count(request)

    def stats(self) -> BackendStats:
        """Requests being played, and tokens played so far."""
        return BackendStats(running=self._running, waiting=0, kv_use=None, progress=self._progress)

    def failure(self) -> str | None:
        """None: the only lasting fault is `die_at`, which leaves nobody to ask."""
        return None

    async def stop(self) -> None:
        """Nothing to free."""

    def _script(self, request: GenerationRequest) -> Script:
        """Return the script for this request. Raises `TandemError` on a bad directive."""
        options: dict[str, Any] = dict(self._entry.engine_options)
        said = _last_user_text(request)
        try:
            if said.startswith(_DIRECTIVE):
                options |= msgspec.json.decode(said.removeprefix(_DIRECTIVE), type=dict[str, Any])
            script = msgspec.convert(options, Script)
        except msgspec.MsgspecError as error:
            raise TandemError(ErrorCode.INVALID_REQUEST, f"bad script: {error}") from None
        if script.echo_results and (results := _last_results(request)):
            return msgspec.structs.replace(script, text=results, tool_calls=())
        return msgspec.structs.replace(script, text=said) if script.echo else script

    async def _play(
        self, script: Script, request: GenerationRequest, tally: Tally, max_tokens: int
    ) -> AsyncGenerator[Event]:
        answer = _Playing(request)
        reason: FinishReason | None = None
        for token in _tokens(script, thinking=request.thinking is not False):
            if answer.tokens == max_tokens:
                reason = FinishReason.LENGTH
                break
            due_s = await self._pause(script, answer.tokens)
            _strike(script, answer.tokens)
            if script.clock and isinstance(token, str):
                token = f" {due_s:.6f}"
            self._progress += 1
            tally.output_tokens += 1
            for event in answer.add(token):
                yield _scored(event, request.sampling.logprobs)
            if answer.is_over():
                break
        for event in answer.end():
            yield _scored(event, request.sampling.logprobs)
        prefix = marked_prefix(request)
        marked_tokens = 0 if prefix is None else min(_count(prefix), tally.prompt_tokens)
        usage = msgspec.structs.replace(
            tally.usage,
            cache_written_tokens=max(0, marked_tokens - tally.cached_tokens),
            thinking_tokens=answer.thinking_tokens,
        )
        yield Finished(
            reason=reason or answer.reason(), usage=usage, stop_sequence=answer.stop_sequence
        )

    async def _pause(self, script: Script, played: int) -> float:
        """Wait for the next token. Return the time at which it was due."""
        if played == script.hang_at:
            await asyncio.Event().wait()
        if played == 0 and script.first_token_delay_s:
            await asyncio.sleep(script.first_token_delay_s)
        elif script.token_delay_s:
            return await self._steps.next(script.token_delay_s)
        else:
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time()


def _scored(delta: Delta, likeliest: int | None) -> Delta:
    """Give text made-up log probabilities, where they were asked for: all of a piece is a token."""
    if likeliest is None or not isinstance(delta, TextDelta):
        return delta
    places = range(likeliest)
    others = tuple(_likely(delta.text if place == 0 else f" {place}", place) for place in places)
    return TextDelta(delta.text, (TokenLogprob(_likely(delta.text, 0), others),))


def _likely(token: str, place: int) -> Likely:
    return Likely(token, -0.25 * (place + 1), token.encode())


class _StepClock:
    """Wakes everybody who waits for the same interval together, with one timer for all."""

    def __init__(self) -> None:
        self._steps: dict[float, tuple[float, asyncio.Event]] = {}

    async def next(self, interval_s: float) -> float:
        """Wait for the next multiple of the interval on the loop's clock, and return it."""
        if interval_s not in self._steps:
            loop = asyncio.get_running_loop()
            # A timer may fire a little before its time (uvloop counts whole milliseconds): a
            # multiple that is nearly due is the one that has just been.
            at_s = (math.floor(loop.time() / interval_s + 0.25) + 1) * interval_s
            self._steps[interval_s] = at_s, asyncio.Event()
            loop.call_at(at_s, self._fire, interval_s)
        at_s, step = self._steps[interval_s]
        await step.wait()
        return at_s

    def _fire(self, interval_s: float) -> None:
        _, step = self._steps.pop(interval_s)
        step.set()


def _strike(script: Script, played: int) -> None:
    """Do the fault that is due before this token, if any."""
    if played == script.fail_at:
        raise TandemError(ErrorCode.ENGINE_FAILED, "the script says to fail here")
    if played == script.die_at:
        os.kill(os.getpid(), signal.SIGKILL)


class _Playing:
    """What was played so far of one answer."""

    def __init__(self, request: GenerationRequest) -> None:
        self.tokens = 0
        self.thinking_tokens = 0
        self._stops = StopFilter(request.sampling.stop)
        self._blocks = Blocks(one_call=not request.tool_choice.parallel)

    @property
    def stop_sequence(self) -> str | None:
        """The stop text that the answer ran into."""
        return self._stops.matched

    def is_over(self) -> bool:
        """Say whether the rest of the script is not wanted."""
        return self._stops.matched is not None or self._blocks.full

    def reason(self) -> FinishReason:
        """Say why an answer ended that was not cut."""
        if self._stops.matched is not None:
            return FinishReason.STOP_SEQUENCE
        return FinishReason.TOOL_USE if self._blocks.called else FinishReason.END

    def add(self, token: _Token) -> Iterator[Delta]:
        """Play one token."""
        self.tokens += 1
        match token:
            case str(text):
                if shown := self._stops.push(text):
                    yield from self._blocks.add_text(shown)
            case ThinkingDelta():
                self.thinking_tokens += 1
                yield token
            case CallPiece():
                if held := self._stops.flush():
                    yield from self._blocks.add_text(held)
                yield from self._blocks.add_call(token)

    def end(self) -> Iterator[Delta]:
        """Play what was held back."""
        if held := self._stops.flush():
            yield from self._blocks.add_text(held)
        yield from self._blocks.end()


def _tokens(script: Script, *, thinking: bool) -> Iterator[_Token]:
    if thinking:
        yield from map(ThinkingDelta, _TOKEN.findall(script.thinking))
    yield from _text_tokens(script)
    for index, call in enumerate(script.tool_calls):
        for number, fragment in enumerate(call.arguments or ("",)):
            yield CallPiece(index, FunctionPiece(None if number else call.name, fragment))


def _text_tokens(script: Script) -> Iterator[str]:
    words = _TOKEN.findall(script.text)
    if script.tokens is None or not words:
        return iter(words)
    # Only the very first word may lack the space before it.
    again = [f" {words[0].lstrip()}", *words[1:]]
    return islice(chain(words, cycle(again)), script.tokens)


def _last_user_text(request: GenerationRequest) -> str:
    """Return what the user said last in words of their own, not by results of tools."""
    for message in reversed(request.messages):
        texts = [part.text for part in message.parts if isinstance(part, TextPart)]
        if message.role is Role.USER and texts:
            return "".join(texts)
    return ""


def _last_results(request: GenerationRequest) -> str:
    """Return what the calls of the last assistant turn came to."""
    said: list[str] = []
    for message in reversed(request.messages):
        if message.role is Role.ASSISTANT:
            break
        results = [part for part in message.parts if isinstance(part, ToolResultPart)]
        texts = [text for result in results for text in result.parts if isinstance(text, TextPart)]
        said = [text.text for text in texts] + said
    return "".join(said)


def _count(request: GenerationRequest) -> int:
    """Count four characters, or four bytes of an image, as a token."""
    for tool in request.tools:
        check_size(tool.schema, f"tool '{tool.name}'")
    tools = sum(len(msgspec.json.encode(tool)) for tool in request.tools)
    size = tools + sum(_size(part) for message in request.messages for part in message.parts)
    return -(-size // _CHARS_PER_TOKEN)


def _size(part: Part) -> int:
    match part:
        case TextPart(text=text) | ThinkingPart(text=text) | ServerToolResultPart(text=text):
            return len(text)
        case ImagePart(data=data):
            return len(data)
        case ToolCallPart() | ServerToolCallPart():
            return len(part.name) + len(part.arguments)
        case ToolResultPart(parts=parts):
            return sum(map(_size, parts))
