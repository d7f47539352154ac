"""vLLM's own parsers, read as the backend reads them, without an engine."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.arguments import MALFORMED
from inference.backends.vllm_answers import ParsedAnswer
from inference.events import Delta
from inference.weights import DEFAULT_MODEL
from tests.contracts.tiny_models import make_thinking_model
from tests.unit.inference.backends.test_answers import brief

pytestmark = pytest.mark.engine

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "x <b> y", "n": [1, 2]}}\n</tool_call>'
OTHER = '<tool_call>{"name": "g", "arguments": {}}</tool_call>'
TOLD = 'f: {"a": "x <b> y", "n": [1, 2]}'
ANSWERS = [
    ("Just text.", ["text: Just text."]),
    ("2 < 3 and 3 <", ["text: 2 < 3 and 3 <"]),
    (CALL, [TOLD]),
    (f"Let me see.\n{CALL}\n{OTHER}", ["text: Let me see.\n", TOLD, "g: {}"]),
    (f"\n\n{CALL}", [TOLD]),
    ('<tool_call>{"name": "f", "arguments": {"a": "x', ['f: {"a": "x"}']),
    ("<tool_call>{'a': 1}</tool_call>", ["text: <tool_call>{'a': 1}</tool_call>"]),
    ("Hm. <tool_call>", ["text: Hm. <tool_call>"]),
]


@cache
def _vllm(models_dir: Path) -> tuple[Any, Any, Any]:
    """Return a tokenizer, the class of parsers for Hermes' calls, and a request with tools."""
    from transformers import AutoTokenizer
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser import ParserManager

    tokenizer = AutoTokenizer.from_pretrained(models_dir / DEFAULT_MODEL)
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    chat = ChatCompletionRequest(
        messages=[{"role": "user", "content": "Hello."}], tools=tools, tool_choice="auto"
    )
    parser = ParserManager.get_parser(tool_parser_name="hermes", enable_auto_tools=True)
    return tokenizer, parser, chat


def _read(models_dir: Path, pieces: list[str]) -> list[Delta]:
    tokenizer, parser, chat = _vllm(models_dir)
    answer = ParsedAnswer(parser(tokenizer, chat.tools), chat, [1, 2], one_call=False)
    events: list[Delta] = []
    for number, piece in enumerate(pieces, 1):
        reason = "stop" if number == len(pieces) else None
        step = SimpleNamespace(text=piece, token_ids=[7], finish_reason=reason)
        events += answer.read(step)
    return [*events, *answer.end()]


@pytest.mark.parametrize(("raw", "told"), ANSWERS)
@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 999), max_size=12))
def test_any_cut_of_an_answer_is_the_same_answer(
    models_dir: Path, raw: str, told: list[str], cuts: list[int]
) -> None:
    places = sorted({0, len(raw), *(cut % (len(raw) + 1) for cut in cuts)})
    pieces = [raw[start:end] for start, end in pairwise(places)]
    assert brief(_read(models_dir, pieces)) == told


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("{'a': 1}", {"a": 1}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": "he said "hi""}', {"a": 'he said "hi"'}),
        ('{"a": [1, 2}', {"a": [1, 2]}),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_bug_10_malformed_arguments_are_repaired(
    models_dir: Path, arguments: str, value: dict[str, Any], size: int
) -> None:
    raw = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)]
    (told,) = brief(_read(models_dir, pieces))
    assert json.loads(told.removeprefix("f: ")) == value


def test_bug_10_hopeless_arguments_are_handed_over_as_they_are(models_dir: Path) -> None:
    raw = '<tool_call>{"name": "f", "arguments": the weather please}</tool_call>'
    (told,) = brief(_read(models_dir, list(raw)))
    assert "the weather please" in json.loads(told.removeprefix("f: "))[MALFORMED]


@pytest.fixture(scope="module")
def thinker(models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a tokenizer that has the tokens around thoughts."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("models") / "thinker"
    make_thinking_model(models_dir / DEFAULT_MODEL, folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("parser_name", ["deepseek_r1", "qwen3"])
@pytest.mark.parametrize("step_tokens", [1, 3, 100])
@pytest.mark.parametrize(
    ("prompt", "raw", "told"),
    [
        (
            "<think>",
            "Well, well.</think>It is Paris.",
            ["thinking: Well, well.", "text: It is Paris."],
        ),
        (
            "",
            "<think>Well, well.</think>It is Paris.",
            ["thinking: Well, well.", "text: It is Paris."],
        ),
        ("<think></think>", "It is Paris.", ["text: It is Paris."]),
        ("<think>", f"Well.</think>\n\n{CALL}{OTHER}", ["thinking: Well.", TOLD, "g: {}"]),
        ("<think>", f"Well.</think>So:{CALL}", ["thinking: Well.", "text: So:", TOLD]),
        ("<think>", "Well, well", ["thinking: Well, well"]),
    ],
)
def test_thoughts_are_read_apart(
    thinker: Any, parser_name: str, step_tokens: int, prompt: str, raw: str, told: list[str]
) -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser import ParserManager

    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    chat = ChatCompletionRequest(
        messages=[{"role": "user", "content": "Hello."}], tools=tools, tool_choice="auto"
    )
    parser_class = ParserManager.get_parser(
        tool_parser_name="hermes", reasoning_parser_name=parser_name, enable_auto_tools=True
    )
    answer = ParsedAnswer(
        parser_class(thinker, chat.tools), chat, thinker.encode(f"x{prompt}"), one_call=False
    )
    token_ids = thinker.encode(raw)
    events: list[Delta] = []
    for start in range(0, len(token_ids), step_tokens):
        ids = token_ids[start : start + step_tokens]
        reason = "stop" if start + step_tokens >= len(token_ids) else None
        step = SimpleNamespace(text=thinker.decode(ids), token_ids=ids, finish_reason=reason)
        events += answer.read(step)
    events += answer.end()

    assert brief(events) == told
    if told[0].startswith("thinking"):
        assert 0 < answer.thinking_tokens <= len(token_ids)
