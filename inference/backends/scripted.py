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
from typing import Any

import msgspec

from inference.backends.limits import check_lengths
from inference.backends.port import BackendStats
from inference.backends.stops import StopFilter
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, FinishReason, Started, TextDelta, Usage
from inference.request import GenerationRequest, Role

_DIRECTIVE = "script:"
_CHARS_PER_TOKEN = 4
_TOKEN = re.compile(r"\s*\S+|\s+$")


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one request plays. A token is a word with the space before it.

    `tokens` is the answer's length, made by repeating or cutting `text`; None plays it once.
    `echo` answers with the last user message instead. Delays are in seconds: before `Started`,
    before the first token, and between tokens. A fault strikes before the token of that index:
    `fail_at` ends the run, `hang_at` never goes on, `die_at` kills the process.
    """

    text: str = "All work and no play makes Jack a dull boy."
    tokens: int | None = None
    echo: bool = False
    start_delay_s: float = 0
    first_token_delay_s: float = 0
    token_delay_s: float = 0
    fail_at: int | None = None
    hang_at: int | None = None
    die_at: int | None = None


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

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event]:
        """Play one request, as the port says."""
        self._running += 1
        try:
            script = self._script(request)
            prompt_tokens = _count(request)
            check_lengths(
                prompt_tokens=prompt_tokens,
                max_tokens=request.sampling.max_tokens,
                context_tokens=self._entry.context_tokens,
            )
            if script.start_delay_s:
                await asyncio.sleep(script.start_delay_s)
            yield Started(prompt_tokens=prompt_tokens)
            async for event in self._play(script, request, prompt_tokens):
                yield event
        except TandemError as error:
            yield Failed(code=error.code, message=error.message)
        finally:
            self._running -= 1

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
        return msgspec.structs.replace(script, text=said) if script.echo else script

    async def _play(
        self, script: Script, request: GenerationRequest, prompt_tokens: int
    ) -> AsyncGenerator[Event]:
        stops = StopFilter(request.sampling.stop)
        reason = FinishReason.END
        played = 0
        for token in _tokens(script):
            if played == request.sampling.max_tokens:
                reason = FinishReason.LENGTH
                break
            await self._pause(script, played)
            _strike(script, played)
            played += 1
            self._progress += 1
            if text := stops.push(token):
                yield TextDelta(text)
            if stops.matched is not None:
                reason = FinishReason.STOP_SEQUENCE
                break
        if text := stops.flush():
            yield TextDelta(text)
        usage = Usage(prompt_tokens=prompt_tokens, cached_tokens=0, output_tokens=played)
        yield Finished(reason=reason, usage=usage, stop_sequence=stops.matched)

    async def _pause(self, script: Script, played: int) -> None:
        if played == script.hang_at:
            await asyncio.Event().wait()
        if played == 0 and script.first_token_delay_s:
            await asyncio.sleep(script.first_token_delay_s)
        elif script.token_delay_s:
            await self._steps.next(script.token_delay_s)
        else:
            await asyncio.sleep(0)


class _StepClock:
    """Wakes everybody who waits for the same interval together, with one timer for all."""

    def __init__(self) -> None:
        self._steps: dict[float, asyncio.Event] = {}

    async def next(self, interval_s: float) -> None:
        """Wait for the next multiple of the interval on the loop's clock."""
        step = self._steps.get(interval_s)
        if step is None:
            step = self._steps[interval_s] = asyncio.Event()
            loop = asyncio.get_running_loop()
            # A timer may fire a little before its time (uvloop counts whole milliseconds): a
            # multiple that is nearly due is the one that has just been.
            at_s = (math.floor(loop.time() / interval_s + 0.25) + 1) * interval_s
            loop.call_at(at_s, self._fire, interval_s)
        await step.wait()

    def _fire(self, interval_s: float) -> None:
        self._steps.pop(interval_s).set()


def _strike(script: Script, played: int) -> None:
    """Do the fault that is due before this token, if any."""
    if played == script.fail_at:
        raise TandemError(ErrorCode.ENGINE_FAILED, "the script says to fail here")
    if played == script.die_at:
        os.kill(os.getpid(), signal.SIGKILL)


def _tokens(script: Script) -> Iterator[str]:
    words = _TOKEN.findall(script.text)
    if script.tokens is None or not words:
        return iter(words)
    # Only the very first word may lack the space before it.
    again = [f" {words[0].lstrip()}", *words[1:]]
    return islice(chain(words, cycle(again)), script.tokens)


def _last_user_text(request: GenerationRequest) -> str:
    for message in reversed(request.messages):
        if message.role is Role.USER:
            return "".join(part.text for part in message.parts)
    return ""


def _count(request: GenerationRequest) -> int:
    chars = sum(len(part.text) for message in request.messages for part in message.parts)
    return -(-chars // _CHARS_PER_TOKEN)
