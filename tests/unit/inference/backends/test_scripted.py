"""The scripted engine's own language: scripts, directives, faults."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from inference.backends.scripted import ScriptedBackend
from inference.errors import ErrorCode, TandemError
from inference.events import Failed, Finished, FinishReason, Started, TextDelta
from inference.fold import fold
from inference.request import (
    CacheMark,
    ImagePart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
)
from tests.conftest import Eventually
from tests.contracts.requests import collect, make_entry, make_request, say, text_of


def _backend(**script: Any) -> ScriptedBackend:
    return ScriptedBackend(make_entry(engine_options=script))


def _directive(**script: Any) -> str:
    return f"script: {msgspec.json.encode(script).decode()}"


async def test_it_plays_its_text_once() -> None:
    events = await collect(_backend(text="Two  words\n"), make_request("Hello."))

    assert events[1:-1] == [TextDelta("Two"), TextDelta("  words"), TextDelta("\n")]
    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.END


@pytest.mark.parametrize(
    ("tokens", "text"), [(0, ""), (1, "to"), (2, "to and"), (5, "to and fro to and")]
)
async def test_it_plays_as_many_tokens_as_it_should(tokens: int, text: str) -> None:
    events = await collect(_backend(text="to and fro", tokens=tokens), make_request("Hello."))

    assert text_of(events) == text
    assert isinstance(events[-1], Finished)
    assert events[-1].usage.output_tokens == tokens


async def test_it_echoes_the_last_user_message() -> None:
    request = make_request("First.", say(Role.ASSISTANT, "Aha."), say(Role.USER, "Say", " this."))

    assert text_of(await collect(_backend(echo=True), request)) == "Say this."


async def test_it_echoes_the_results_of_calls_and_calls_no_more() -> None:
    backend = _backend(echo_results=True, text="", tool_calls=[{"name": "look"}])
    call = ToolCallPart(id="c", name="look", arguments="{}")
    seen = ToolResultPart(call_id="c", parts=(TextPart("A cat"), TextPart(" and a dog.")))
    asked = make_request("Look.")
    called = make_request(
        "Look.",
        Message(role=Role.ASSISTANT, parts=(call,)),
        Message(role=Role.USER, parts=(seen, TextPart("Go on."))),
    )

    first = await fold(backend.generate(asked))
    assert first.finished.reason is FinishReason.TOOL_USE
    second = await fold(backend.generate(called))
    assert second.finished.reason is FinishReason.END
    assert second.text == "A cat and a dog."


async def test_it_says_when_each_step_was_due() -> None:
    before_s = time.monotonic()

    text = text_of(
        await collect(_backend(clock=True, tokens=4, token_delay_s=0.01), make_request())
    )

    said = [float(word) for word in text.split()]
    assert before_s < said[0]
    assert said[-1] < time.monotonic() + 0.01
    assert all(later - earlier >= 0.009 for earlier, later in pairwise(said))
    assert all(round(due_s / 0.01, 3).is_integer() for due_s in said)


async def test_it_lets_a_request_change_single_fields() -> None:
    backend = _backend(text="from the model", tokens=2)

    assert text_of(await collect(backend, make_request(_directive(tokens=3)))) == "from the model"
    assert text_of(await collect(backend, make_request("Hello."))) == "from the"


@pytest.mark.parametrize("directive", ["script: no JSON", 'script: {"tokns": 1}', "script: [1]"])
async def test_it_refuses_a_directive_that_it_does_not_understand(directive: str) -> None:
    events = await collect(_backend(), make_request(directive))

    assert len(events) == 1
    assert isinstance(events[0], Failed)
    assert events[0].code is ErrorCode.INVALID_REQUEST
    assert events[0].message.startswith("bad script: ")


async def test_it_does_not_start_with_options_that_it_does_not_understand() -> None:
    with pytest.raises(TandemError, match=r"bad script of model-under-test: .*`volume`"):
        await _backend(volume=11).start()


async def test_it_fails_before_the_token_that_the_script_names() -> None:
    events = await collect(_backend(text="a b c", fail_at=2), make_request("Hello."))

    assert text_of(events) == "a b"
    assert events[-1] == Failed(
        code=ErrorCode.ENGINE_FAILED, message="the script says to fail here"
    )


async def test_it_hangs_before_the_token_that_the_script_names(eventually: Eventually) -> None:
    backend = _backend(text="a b c", hang_at=2)
    run = asyncio.create_task(collect(backend, make_request("Hello.")))

    await eventually(lambda: backend.stats().progress == 2)
    done, _ = await asyncio.wait([run], timeout=0.05)

    assert not done
    assert backend.stats().running == 1
    assert backend.stats().progress == 2
    run.cancel()


def test_it_dies_before_the_token_that_the_script_names() -> None:
    program = """
import asyncio, django
django.setup()
from inference.backends.scripted import ScriptedBackend
from tests.contracts.requests import make_entry, make_request

async def main():
    backend = ScriptedBackend(make_entry(engine_options={"text": "a b c", "die_at": 2}))
    async for event in backend.generate(make_request("Hello.")):
        print(type(event).__name__, flush=True)

asyncio.run(main())
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert result.returncode == -signal.SIGKILL, result.stderr
    assert result.stdout.split() == ["Started", "TextDelta", "TextDelta"]


async def test_it_counts_a_prompt_by_its_characters() -> None:
    started, *_ = await collect(_backend(), make_request("x" * 9))

    assert started == Started(3)


async def test_it_moves_streams_of_one_pace_in_the_same_step() -> None:
    backend = _backend(text="a b c d", token_delay_s=0.02)
    order: list[int] = []

    async def run(number: int) -> None:
        async for event in backend.generate(make_request("Hello.")):
            if isinstance(event, TextDelta):
                order.append(number)

    await asyncio.gather(*map(run, range(3)))

    assert [sorted(order[step : step + 3]) for step in range(0, 12, 3)] == [[0, 1, 2]] * 4


async def test_it_plays_thinking_then_text_then_calls() -> None:
    script = {
        "thinking": "Well, well.",
        "text": "Let me see.",
        "tool_calls": [
            {"name": "get_weather", "arguments": ['{"city": ', '"Rome"}']},
            {"name": "ping"},
        ],
    }

    answer = await fold(_backend(**script).generate(make_request("Hello.")))

    thinking, text, *calls = answer.parts
    assert (thinking, text) == (ThinkingPart("Well, well."), TextPart("Let me see."))
    assert [(call.name, call.arguments) for call in calls if isinstance(call, ToolCallPart)] == [
        ("get_weather", '{"city": "Rome"}'),
        ("ping", "{}"),
    ]
    assert answer.finished.reason is FinishReason.TOOL_USE
    assert answer.finished.usage.thinking_tokens == 2
    assert answer.finished.usage.output_tokens == 8


async def test_it_cuts_a_call_at_max_tokens() -> None:
    backend = _backend(text="", tool_calls=[{"name": "f", "arguments": ['{"a": "x', 'y"}']}])

    answer = await fold(backend.generate(make_request("Hello.", max_tokens=1)))

    (call,) = answer.parts
    assert isinstance(call, ToolCallPart)
    assert call.arguments == '{"a": "x"}'
    assert answer.finished.reason is FinishReason.LENGTH


async def test_it_makes_one_call_where_one_is_wanted() -> None:
    backend = _backend(text="", tool_calls=[{"name": "f"}, {"name": "g"}])
    request = msgspec.structs.replace(
        make_request("Hello."), tool_choice=ToolChoice(parallel=False)
    )

    answer = await fold(backend.generate(request))

    assert [part.name for part in answer.parts if isinstance(part, ToolCallPart)] == ["f"]
    assert answer.finished.reason is FinishReason.TOOL_USE


async def test_it_says_what_was_cached_as_the_script_says() -> None:
    request = msgspec.structs.replace(
        make_request("x" * 40, say(Role.ASSISTANT, "y"), "z"),
        cache_mark=CacheMark(message=0, part=0),
    )

    *_, first = await collect(_backend(), request)
    *_, second = await collect(_backend(cached_tokens=8), request)

    assert isinstance(first, Finished)
    assert isinstance(second, Finished)
    assert (first.usage.cached_tokens, first.usage.cache_written_tokens) == (0, 10)
    assert (second.usage.cached_tokens, second.usage.cache_written_tokens) == (8, 2)


async def test_it_counts_everything_in_a_prompt() -> None:
    image = ImagePart(media_type="image/png", data=b"x" * 40)
    result = ToolResultPart(call_id="1", parts=(TextPart("x" * 8), image))
    call = ToolCallPart(id="1", name="f", arguments="x" * 7)
    request = make_request(
        Message(role=Role.ASSISTANT, parts=(ThinkingPart("x" * 4), call)),
        Message(role=Role.USER, parts=(result,)),
    )

    assert await _backend().count(request) == (4 + 8 + 8 + 40) // 4
    with_tool = msgspec.structs.replace(request, tools=(Tool(name="f", schema={}),))
    assert await _backend().count(with_tool) > await _backend().count(request)


async def test_its_directive_is_the_last_that_the_user_said_in_words() -> None:
    result = ToolResultPart(call_id="1", parts=(TextPart("sunny"),))
    request = make_request(
        _directive(text="played"),
        Message(role=Role.ASSISTANT, parts=(ToolCallPart(id="1", name="f", arguments="{}"),)),
        Message(role=Role.USER, parts=(result,)),
    )

    assert text_of(await collect(_backend(), request)) == "played"
