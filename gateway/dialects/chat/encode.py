"""From canonical events to the Chat answer: server-sent chunks, or one JSON completion.

Both are made from the same pieces, so a client that folds the stream gets the JSON completion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.errors import openai_error
from gateway.http.sse import COMMENT, json_line
from gateway.serving.choices import Chosen
from inference.errors import TandemError
from inference.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Likely,
    ServerToolCall,
    Started,
    TextDelta,
    ThinkingDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from inference.fold import Answer, AnswerPart
from inference.request import ServerToolCallPart, TextPart, ThinkingPart, ToolCallPart

FINISH_REASONS: dict[FinishReason, str] = {
    FinishReason.END: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.STOP_SEQUENCE: "stop",
    FinishReason.TOOL_USE: "tool_calls",
    # Nobody here can send it back, so it is never said.
    FinishReason.PAUSE: "stop",
    FinishReason.REFUSAL: "content_filter",
}

DONE = b"data: [DONE]\n\n"

# Between what was said before the server ran tools and after: this API has no place for the calls.
_BREAK = "\n\n"

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What an answer repeats of its request, and what of it is wanted.

    `created_s` is in seconds of Unix time; `tier` is the service tier that served it; `usage` asks
    a stream for its token counts. With `shares_prompt` the prompt of several answers counts once.
    """

    completion_id: str
    model: str
    created_s: int
    tier: str = "default"
    choices: int = 1
    shares_prompt: bool = True
    usage: bool = False
    reasoning: bool = True


class ChunkStream:
    """Turns the events of one request's answers into chunks."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._head = _head(shape, "chat.completion.chunk")
        if shape.usage:
            self._head["usage"] = None
        self._choices = [_Choice(index, self._chunk) for index in range(shape.choices)]
        self._used: list[Usage] = []
        self.over = False

    def refusal(self, event: Chosen) -> TandemError | None:
        """Return the error if the very first event says that there will be no answer."""
        failed = event.event
        return TandemError(failed.code, failed.message) if isinstance(failed, Failed) else None

    def feed(self, event: Chosen) -> bytes:
        """Return the frames for the next event, empty if it has none."""
        number, said = event
        choice = self._choices[number]
        match said:
            case Started():
                # Clients put answers into a list in the order in which they begin.
                return b"".join(each.begin() for each in self._choices[: number + 1])
            case TextDelta(text=text, logprobs=logprobs):
                return choice.text(text, logprobs)
            case ThinkingDelta(text=text):
                return choice.thought(text) if self._shape.reasoning else b""
            case Failed(code=code, message=message):
                self.over = True
                return failure(TandemError(code, message))
            case Finished(usage=usage):
                self._used.append(_used(usage, number, self._shape))
                return choice.finish(said) + self._end()
        return choice.feed(said)

    def keep_alive(self, *, begun: bool) -> bytes:
        """Return a comment: clients read every event's data as a chunk."""
        return COMMENT

    def _end(self) -> bytes:
        if len(self._used) < self._shape.choices:
            return b""
        self.over = True
        if not self._shape.usage:
            return DONE
        return _frame(self._head | {"choices": [], "usage": _usage(self._used)}) + DONE

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        return _frame(self._head | {"choices": [choice]})


class _Choice:
    """One answer in the stream. `chunk` makes a frame of one choice."""

    def __init__(self, index: int, chunk: Callable[[dict[str, Any]], bytes]) -> None:
        self._index = index
        self._chunk = chunk
        self._begun = False
        self._call = -1
        self._in_call = False
        self._has_arguments = False
        self._said = False
        self._interrupted = False
        # Every token passes here: a frame is made once and only the text is encoded anew.
        self._text = self._cut({"content": "@"})
        self._thought = self._cut({"reasoning_content": "@", "reasoning": "@"})
        self._arguments: list[bytes] = []

    def begin(self) -> bytes:
        """Return the frame of the beginning.

        A run that another engine took over starts again: only the first start is told.
        """
        if self._begun:
            return b""
        self._begun = True
        return self._delta({"role": "assistant", "content": "", "refusal": None})

    def feed(self, event: Event) -> bytes:
        """Return the frames of a call."""
        match event:
            case ToolCallStarted(id=call_id, name=name):
                return self._close() + self._open(call_id, name)
            case ToolCallDelta(arguments=arguments):
                self._has_arguments = True
                return json_line(arguments).join(self._arguments)
            case ServerToolCall():
                self._interrupted = self._said
        return b""

    def text(self, text: str, logprobs: Sequence[TokenLogprob]) -> bytes:
        """Return the frame of the next piece of text."""
        if self._interrupted:
            text = _BREAK + text
        self._said, self._interrupted = True, False
        if logprobs:
            return self._close() + self._delta({"content": text}, _logprobs(logprobs))
        return self._close() + json_line(text).join(self._text)

    def thought(self, text: str) -> bytes:
        """Return the frame of the next piece of reasoning."""
        return self._close() + json_line(text).join(self._thought)

    def finish(self, finished: Finished) -> bytes:
        """Return the frame that ends this answer."""
        return self._close() + self._chunk(
            {"index": self._index, "delta": {}, "logprobs": None, **_stop(finished)}
        )

    def _open(self, call_id: str, name: str) -> bytes:
        self._call += 1
        self._in_call, self._has_arguments = True, False
        index = {"index": self._call}
        self._arguments = self._cut({"tool_calls": [index | {"function": {"arguments": "@"}}]})
        return self._delta({"tool_calls": [index | _tool_call(call_id, name, "")]})

    def _close(self) -> bytes:
        """Return what an open call lacks: without arguments it would not be JSON."""
        if not self._in_call:
            return b""
        self._in_call = False
        return b"" if self._has_arguments else json_line("{}").join(self._arguments)

    def _cut(self, delta: dict[str, Any]) -> list[bytes]:
        return self._delta(delta).split(b'"@"')

    def _delta(self, delta: dict[str, Any], logprobs: dict[str, Any] | None = None) -> bytes:
        return self._chunk(
            {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
        )


def failure(error: TandemError) -> bytes:
    """Return the frame that ends a broken stream. No `[DONE]`: the answer is not."""
    return _frame({"error": openai_error(error)})


def completion(answers: Sequence[Answer], shape: Shape) -> bytes:
    """Return the JSON completion of whole answers, the first choice's first."""
    used = [_used(answer.finished.usage, index, shape) for index, answer in enumerate(answers)]
    # One by one: with log probabilities each may have megabytes, and far more as objects.
    choices = [
        msgspec.Raw(_encode(_choice(index, answer, shape))) for index, answer in enumerate(answers)
    ]
    head = _head(shape, "chat.completion")
    return _encode(head | {"choices": choices, "usage": _usage(used)})


def _used(usage: Usage, index: int, shape: Shape) -> Usage:
    return usage.without_prompt() if index and shape.shares_prompt else usage


def _head(shape: Shape, kind: str) -> dict[str, Any]:
    return {
        "id": shape.completion_id,
        "object": kind,
        "created": shape.created_s,
        "model": shape.model,
        "service_tier": shape.tier,
        "system_fingerprint": None,
    }


def _frame(payload: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json_line(payload)


def _choice(index: int, answer: Answer, shape: Shape) -> dict[str, Any]:
    logprobs = [token for part in answer.logprobs for token in part]
    return {
        "index": index,
        "message": _message(answer, shape),
        "logprobs": _logprobs(logprobs) if logprobs else None,
        **_stop(answer.finished),
    }


def _message(answer: Answer, shape: Shape) -> dict[str, Any]:
    calls = [
        _tool_call(part.id, part.name, part.arguments)
        for part in answer.parts
        if isinstance(part, ToolCallPart)
    ]
    thoughts = [part.text for part in answer.parts if isinstance(part, ThinkingPart)]
    thought = "".join(thoughts) if thoughts and shape.reasoning else None
    said = any(isinstance(part, TextPart) for part in answer.parts)
    return {
        "role": "assistant",
        "content": _text(answer.parts) if said or not calls else None,
        "refusal": None,
        "annotations": [],
        # Its older name at vLLM and DeepSeek, and its newer one at vLLM and OpenRouter.
        "reasoning_content": thought,
        "reasoning": thought,
        **({"tool_calls": calls} if calls else {}),
    }


def _text(parts: Iterable[AnswerPart]) -> str:
    text, interrupted = "", False
    for part in parts:
        match part:
            case ServerToolCallPart():
                interrupted = bool(text)
            case TextPart(text=piece):
                text += _BREAK + piece if interrupted else piece
                interrupted = False
    return text


def _tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a call. Without hyphens the id is short enough for every other API."""
    return {
        "id": f"call_{call_id.replace('-', '')}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _stop(finished: Finished) -> dict[str, str | None]:
    return {
        "finish_reason": FINISH_REASONS[finished.reason],
        # vLLM's: the text of `stop` that matched.
        "stop_reason": finished.stop_sequence,
    }


def _logprobs(tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
    content = [
        _likely(token.taken) | {"top_logprobs": [_likely(other) for other in token.likeliest]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _likely(token: Likely) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.data)}


def _usage(used: Sequence[Usage]) -> dict[str, Any]:
    prompt = sum(usage.prompt_tokens for usage in used)
    output = sum(usage.output_tokens for usage in used)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {
            "cached_tokens": sum(usage.cached_tokens for usage in used),
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": sum(usage.thinking_tokens for usage in used),
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
