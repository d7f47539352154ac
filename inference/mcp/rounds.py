"""The rounds of one answer: in each, the model says something and perhaps calls tools."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from inference.backends.port import Tally
from inference.errors import ErrorCode, TandemError
from inference.events import (
    CUT_SHORT,
    Event,
    Failed,
    Finished,
    FinishReason,
    ServerToolResult,
    Started,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from inference.fold import Parts
from inference.mcp.calls import Call, called
from inference.mcp.credit import NextRound
from inference.mcp.history import replay
from inference.mcp.names import Offer
from inference.request import (
    GenerationRequest,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)

_FORCED = (ToolMode.ANY, ToolMode.NAMED)


class RoundTally(Tally):
    """What one round has used, which counts in the whole answer's tally as well."""

    __slots__ = ("_whole",)

    def __init__(self, whole: Tally) -> None:
        self._whole = whole
        super().__init__()

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, int):
            more = value - getattr(self, name, 0)
            setattr(self._whole, name, getattr(self._whole, name) + more)
        super().__setattr__(name, value)


class Round:
    """What comes of one round. `finished` is how it ended; None while it runs or where it failed.

    `calls_client`: some of what was called is the caller's to run.
    """

    def __init__(self, offer: Offer, *, is_first: bool) -> None:
        self.finished: Finished | None = None
        self.calls_client = False
        self._offer = offer
        self._is_first = is_first
        self._parts = Parts()
        self._said: tuple[Part, ...] = ()
        self._in_server_call = False

    def take(self, event: Event) -> Event | None:
        """Take the backend's next event. Return what the caller is to see of it now.

        A call of a server's tool is seen when it is run, whole.
        """
        match event:
            case Started():
                return event if self._is_first else None
            case Failed():
                return event
            case Finished():
                self.finished, self._said = event, tuple(self._parts.closed())
                return None
            case ToolCallStarted(name=name):
                self._in_server_call = self._offer.find(name) is not None
                self.calls_client |= not self._in_server_call
            case ToolCallDelta():
                pass
            case _:
                self._in_server_call = False
        self._parts.add(event)
        return None if self._in_server_call else event

    @property
    def is_last(self) -> bool:
        """Whether the model, or the caller, has the next word whatever the server's calls say."""
        stopped = self.finished is not None and self.finished.reason is not FinishReason.TOOL_USE
        return stopped or self.calls_client

    @property
    def said(self) -> tuple[Part, ...]:
        """All that the model said and called in a round that is over."""
        return self._said

    def server_calls(self) -> list[Call]:
        """Return what is the server's to run: nothing of an answer that was cut in a call."""
        if self.finished is None or self.finished.reason in CUT_SHORT:
            return []
        return [
            called(part, tool)
            for part in self._said
            if isinstance(part, ToolCallPart) and (tool := self._offer.find(part.name))
        ]


class Conversation:
    """The request as it grows from round to round, and what all of them used."""

    def __init__(self, request: GenerationRequest, offer: Offer) -> None:
        """Offer the tools. Raises INVALID_REQUEST where the choice is none of them."""
        self.request = offered(request, offer)
        self._own_tools = request.tools
        self._used = Usage(prompt_tokens=0, cached_tokens=0, output_tokens=0)
        # The most that the next prompt has: no tokenizer makes more tokens than there are bytes.
        self._prompt_tokens = 0

    @property
    def has_room(self) -> bool:
        """Whether another round may put out a token."""
        return self.request.sampling.max_tokens > 0

    def go_on(self, a_round: Round, results: Sequence[ServerToolResult]) -> None:
        """Put what a round said, and what its calls came to, before the next one."""
        if a_round.finished is None:
            raise ValueError("the round is not over")
        usage = a_round.finished.usage
        self._used += usage
        self._prompt_tokens = usage.prompt_tokens + usage.output_tokens
        request = self.request
        left = request.sampling.max_tokens - usage.output_tokens
        self.request = replace(
            request,
            messages=(*request.messages, Message(role=Role.ASSISTANT, parts=a_round.said)),
            sampling=replace(request.sampling, max_tokens=max(0, left), min_tokens=0),
            # It was forced to call, and has.
            tool_choice=_freed(request.tool_choice),
        )
        self.add_results(results)

    def add_results(self, results: Sequence[ServerToolResult]) -> None:
        """Let the model see what calls came to."""
        if not results:
            return
        self._prompt_tokens += sum(len(result.text.encode()) for result in results)
        parts: tuple[Part, ...] = tuple(map(_result_part, results))
        messages = self.request.messages
        if messages[-1].role is Role.USER:
            parts, messages = (*messages[-1].parts, *parts), messages[:-1]
        said = Message(role=Role.USER, parts=parts)
        self.request = replace(self.request, messages=(*messages, said))

    def withdraw_tools(self) -> None:
        """Offer the servers' tools no more."""
        self.request = replace(self.request, tools=self._own_tools)

    def end(self, a_round: Round) -> Finished:
        """Return the end of an answer whose last round this was."""
        if a_round.finished is None:
            raise ValueError("the round is not over")
        finished = a_round.finished
        reason = finished.reason
        if reason is FinishReason.TOOL_USE and not a_round.calls_client:
            reason = FinishReason.END
        return replace(finished, reason=reason, usage=self._used + finished.usage)

    def next_round(self, context_tokens: int) -> NextRound:
        """Return what the next round is about to use, of a model with so much context."""
        return NextRound(
            request=self.request,
            used=self._used,
            prompt_tokens=self._prompt_tokens,
            context_tokens=context_tokens,
        )

    def stop(self, reason: FinishReason) -> Finished:
        """Return the end of an answer that stops after the rounds so far."""
        return Finished(reason=reason, usage=self._used)


def offered(request: GenerationRequest, offer: Offer) -> GenerationRequest:
    """Return the request as the backend is given it, with the servers' tools.

    Raises INVALID_REQUEST where the caller demands a tool that is not there.
    """
    tools = (*request.tools, *offer.tools)
    choice = request.tool_choice
    if choice.mode is ToolMode.ANY and not tools:
        raise _invalid("tool_choice: a tool can be required only when there are any")
    if choice.mode is ToolMode.NAMED:
        name = offer.chosen(choice.name or "")
        if name is None:
            raise _invalid(f"tool_choice.name: Tool '{choice.name}' not found in provided tools")
        choice = replace(choice, name=name)
    return replace(replay(request, offer.name_of), tools=tools, tool_choice=choice)


def _invalid(message: str) -> TandemError:
    return TandemError(ErrorCode.INVALID_REQUEST, message, param="tool_choice")


def _freed(choice: ToolChoice) -> ToolChoice:
    if choice.mode in _FORCED:
        return replace(choice, mode=ToolMode.AUTO, name=None)
    return choice


def _result_part(result: ServerToolResult) -> ToolResultPart:
    return ToolResultPart(
        call_id=result.call_id, parts=(TextPart(result.text),), is_error=result.is_error
    )
