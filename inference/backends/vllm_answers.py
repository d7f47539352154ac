"""How vLLM's output becomes an answer: as it is, or read by vLLM's own parsers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from inference.backends.answers import Blocks
from inference.events import Delta, TextDelta, TokenLogprob


class Answer(Protocol):
    """Reads one request's output. `full` says that no more of it is wanted."""

    @property
    def full(self) -> bool:
        """Whether a call more than was wanted has begun."""

    @property
    def called(self) -> bool:
        """Whether any call was made."""

    @property
    def thinking_tokens(self) -> int:
        """How many tokens were reasoning; known after `end`."""

    def read(self, completion: Any) -> Iterator[Delta]:
        """Yield the events of one step; `completion` is vLLM's `CompletionOutput`."""

    def is_cut(self) -> bool:
        """Say whether the last call stopped in the middle of its arguments. Ask before `end`."""

    def end(self) -> Iterator[Delta]:
        """Yield the last events, once the output is over."""


class PlainAnswer:
    """Text and nothing else: the shortest way through."""

    full = False
    called = False
    thinking_tokens = 0

    def read(self, completion: Any) -> Iterator[Delta]:
        """Yield the text of one step."""
        if completion.text:
            yield TextDelta(completion.text)

    def is_cut(self) -> bool:
        """Say no: there are no calls."""
        return False

    def end(self) -> Iterator[Delta]:
        """Yield nothing: no text is held back."""
        yield from ()


class NoAnswer(PlainAnswer):
    """For a request that only wants its prompt in the cache: what is put out is nobody's."""

    def read(self, completion: Any) -> Iterator[Delta]:
        """Yield nothing."""
        yield from ()


class ScoredAnswer:
    """Another answer with the log probabilities of its text's tokens.

    `score` returns those of one step. Tokens that became no text, such as the one that ends the
    answer, and those of thinking and calls are left out, as OpenAI leaves them out.
    """

    def __init__(self, answer: Answer, score: Callable[[Any], list[TokenLogprob]]) -> None:
        self._answer = answer
        self._score = score
        self._waiting: list[TokenLogprob] = []

    @property
    def full(self) -> bool:
        """Whether a call more than was wanted has begun."""
        return self._answer.full

    @property
    def called(self) -> bool:
        """Whether any call was made."""
        return self._answer.called

    @property
    def thinking_tokens(self) -> int:
        """How many tokens were reasoning; known after `end`."""
        return self._answer.thinking_tokens

    def read(self, completion: Any) -> Iterator[Delta]:
        """Yield the events of one step."""
        self._waiting += self._score(completion)
        yield from self._scored(self._answer.read(completion))

    def is_cut(self) -> bool:
        """Say whether the last call stopped in the middle of its arguments."""
        return self._answer.is_cut()

    def end(self) -> Iterator[Delta]:
        """Yield the last events."""
        yield from self._scored(self._answer.end())

    def _scored(self, deltas: Iterator[Delta]) -> Iterator[Delta]:
        for delta in deltas:
            scores, self._waiting = tuple(self._waiting), []
            yield TextDelta(delta.text, scores) if isinstance(delta, TextDelta) else delta


class ParsedAnswer:
    """Output that vLLM's parsers take apart into thinking, text and calls."""

    def __init__(self, parser: Any, chat: Any, prompt_ids: list[int], *, one_call: bool) -> None:
        self.thinking_tokens = 0
        self._parser = parser
        self._chat = chat
        self._prompt_ids = prompt_ids
        self._blocks = Blocks(one_call=one_call)
        self._raw: list[str] = []
        self._content: list[str] = []
        self._token_ids: list[int] = []
        self._tokens_with_thinking = 0

    @property
    def full(self) -> bool:
        """Whether a call more than was wanted has begun."""
        return self._blocks.full

    @property
    def called(self) -> bool:
        """Whether any call was made."""
        return self._blocks.called

    def read(self, completion: Any) -> Iterator[Delta]:
        """Yield the events of one step."""
        token_ids = list(completion.token_ids)
        self._raw.append(completion.text)
        self._token_ids += token_ids
        parsed = self._parser.parse_delta(
            delta_text=completion.text,
            delta_token_ids=token_ids,
            request=self._chat,
            prompt_token_ids=self._prompt_ids,
            finished=completion.finish_reason is not None,
        )
        if parsed is not None:
            self._content.append(parsed.content or "")
            if parsed.reasoning:
                self._note_thinking(parsed, len(token_ids))
            yield from self._blocks.add(parsed)

    def is_cut(self) -> bool:
        """Say whether the last call stopped in the middle of its arguments."""
        return self._blocks.is_cut()

    def end(self) -> Iterator[Delta]:
        """Close what is open, and yield what the parser kept to itself."""
        counted = self._parser.count_reasoning_tokens(tuple(self._token_ids))
        # Some parsers count only from a start token, which the template may have written.
        self.thinking_tokens = counted or self._tokens_with_thinking
        if not self.called and (text := self._swallowed()):
            yield from self._blocks.add_text(text)
        yield from self._blocks.end()

    def _note_thinking(self, parsed: Any, tokens: int) -> None:
        start = self._parser.reasoning_parser.reasoning_start_str
        if start and not self._tokens_with_thinking:
            # Some parsers leave it there when more came in the same step.
            parsed.reasoning = parsed.reasoning.removeprefix(start)
        self._tokens_with_thinking += tokens

    def _swallowed(self) -> str:
        """Return text that looked like a call to the parser and never became one."""
        if self._parser.tool_parser is None:
            return ""
        raw = "".join(self._raw)
        if self._tokens_with_thinking:
            end = self._parser.reasoning_parser.reasoning_end_str
            raw = raw.partition(end)[2] if end else ""
        said = "".join(self._content)
        return raw[len(said) :] if raw.startswith(said) else ""
