"""Reading vLLM's output. The parser is played by a script: vLLM's own are in the contract suite."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from inference.backends.vllm_answers import NoAnswer, ParsedAnswer, PlainAnswer
from inference.events import Delta, TextDelta, ThinkingDelta


def step(text: str, *token_ids: int, finish_reason: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        text=text, token_ids=token_ids or (7,), finish_reason=finish_reason, stop_reason=None
    )


def parsed(content: str | None = None, reasoning: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(content=content, reasoning=reasoning, tool_calls=[])


class Parser:
    """Says for each step what it is told to say."""

    def __init__(self, *said: SimpleNamespace | None, counted: int = 0) -> None:
        self.tool_parser = object()
        self.reasoning_parser = SimpleNamespace(
            reasoning_start_str="<think>", reasoning_end_str="</think>"
        )
        self.asked: list[dict[str, Any]] = []
        self._said = iter(said)
        self._counted = counted

    def parse_delta(self, **asked: Any) -> SimpleNamespace | None:
        self.asked.append(asked)
        return next(self._said)

    def count_reasoning_tokens(self, token_ids: tuple[int, ...]) -> int:
        return self._counted


def read(parser: Parser, *steps: SimpleNamespace) -> tuple[list[Delta], ParsedAnswer]:
    answer = ParsedAnswer(parser, "the chat", [1, 2], one_call=False)
    events = [event for completion in steps for event in answer.read(completion)]
    return [*events, *answer.end()], answer


def test_plain_text_goes_through_as_it_is() -> None:
    answer = PlainAnswer()
    assert list(answer.read(step("Hi"))) == [TextDelta("Hi")]
    assert list(answer.read(step(""))) == []
    assert list(answer.end()) == []


def test_nothing_comes_of_a_prompt_that_is_only_cached() -> None:
    assert list(NoAnswer().read(step("Hi"))) == []


def test_the_parser_is_given_what_vllms_server_gives_it() -> None:
    parser = Parser(parsed("a"), parsed("b"))
    read(parser, step("a", 5, 6), step("b", 7, finish_reason="stop"))
    assert parser.asked == [
        {
            "delta_text": "a",
            "delta_token_ids": [5, 6],
            "request": "the chat",
            "prompt_token_ids": [1, 2],
            "finished": False,
        },
        {
            "delta_text": "b",
            "delta_token_ids": [7],
            "request": "the chat",
            "prompt_token_ids": [1, 2],
            "finished": True,
        },
    ]


def test_thinking_is_counted_as_the_parser_counts_it() -> None:
    parser = Parser(parsed(reasoning="Hm"), parsed("Hi"), counted=5)
    events, answer = read(parser, step("Hm", 5, 6), step("</think>Hi"))
    assert events == [ThinkingDelta("Hm"), TextDelta("Hi")]
    assert answer.thinking_tokens == 5


def test_thinking_is_counted_by_steps_where_the_parser_sees_no_beginning() -> None:
    parser = Parser(parsed(reasoning="Hm"), None, parsed("Hi"))
    _, answer = read(parser, step("Hm", 5, 6), step("</think>"), step("Hi"))
    assert answer.thinking_tokens == 2


def test_a_mark_that_the_parser_left_before_a_thought_is_taken_away() -> None:
    parser = Parser(parsed(reasoning="<think>Hm"), parsed(reasoning="<think>"))
    events, _ = read(parser, step("<think>Hm"), step("<think>"))
    assert events == [ThinkingDelta("Hm"), ThinkingDelta("<think>")]


def test_what_only_looked_like_a_call_is_text() -> None:
    parser = Parser(parsed("Say: "), None)
    events, _ = read(parser, step("Say: <to"), step("ol", finish_reason="stop"))
    assert events == [TextDelta("Say: "), TextDelta("<tool")]


def test_what_only_looked_like_a_call_is_text_after_thinking_too() -> None:
    parser = Parser(parsed(reasoning="Hm"), None)
    events, _ = read(parser, step("Hm</think>"), step("<tool_call>x", finish_reason="stop"))
    assert events == [ThinkingDelta("Hm"), TextDelta("<tool_call>x")]


def test_thinking_that_never_ends_is_no_text() -> None:
    parser = Parser(parsed(reasoning="Hm"), None)
    events, _ = read(parser, step("Hm"), step(" m", finish_reason="length"))
    assert events == [ThinkingDelta("Hm")]
