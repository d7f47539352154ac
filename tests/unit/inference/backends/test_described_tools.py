"""Tools said in text, for templates that know none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inference.backends.described_tools import FORMATS, describe_tools, require_format, result_text
from inference.errors import ErrorCode, TandemError
from inference.request import (
    GenerationRequest,
    ImagePart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)
from tests.contracts.requests import make_request, say

HERMES = FORMATS["hermes"]
WEATHER = Tool(name="get_weather", description="The weather.", schema={"type": "object"})
PING = Tool(name="ping", schema={"type": "object"})
IMAGE = ImagePart(media_type="image/png", data=b"png")


def described(*messages: Message, **fields: Any) -> GenerationRequest:
    request = make_request(*(messages or (say(Role.USER, "Hello."),)))
    fields = {"tools": (WEATHER, PING)} | fields
    return describe_tools(msgspec.structs.replace(request, **fields), HERMES)


def test_it_describes_every_tool_in_a_system_turn() -> None:
    system, user = described().messages
    assert system.role is Role.SYSTEM
    (text,) = (part.text for part in system.parts if isinstance(part, TextPart))
    assert (
        "<tools>\n"
        '{"type":"function","function":{"name":"get_weather","description":"The weather.",'
        '"parameters":{"type":"object"}}}\n'
        '{"type":"function","function":{"name":"ping","parameters":{"type":"object"}}}\n'
        "</tools>"
    ) in text
    assert '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}' in text
    assert user == say(Role.USER, "Hello.")


def test_it_keeps_the_callers_system_turn_behind_the_tools() -> None:
    system, _ = described(say(Role.SYSTEM, "Be kind."), say(Role.USER, "Hello.")).messages
    assert system.role is Role.SYSTEM
    assert system.parts[1:] == (TextPart("Be kind."),)


def test_it_keeps_the_tools_for_the_parser() -> None:
    assert described().tools == (WEATHER, PING)


@pytest.mark.parametrize(
    "fields", [{"tools": ()}, {"tool_choice": ToolChoice(mode=ToolMode.NONE)}], ids=["none", "NONE"]
)
def test_it_describes_nothing_where_no_tool_may_be_called(fields: dict[str, Any]) -> None:
    assert described(**fields).messages == (say(Role.USER, "Hello."),)


def test_it_tells_calls_and_results_in_the_parsers_format() -> None:
    call = ToolCallPart(id="1", name="get_weather", arguments='{"city": "Köln"}')
    result = ToolResultPart(call_id="1", parts=(TextPart("sunny"), IMAGE, TextPart("18 C")))
    _, _, assistant, user = described(
        say(Role.USER, "Weather?"),
        Message(role=Role.ASSISTANT, parts=(ThinkingPart("Hm."), TextPart("Let me see."), call)),
        Message(role=Role.USER, parts=(result, TextPart("And?"))),
    ).messages
    assert assistant.parts == (
        ThinkingPart("Hm."),
        TextPart("Let me see."),
        TextPart('<tool_call>\n{"name":"get_weather","arguments":{"city": "Köln"}}\n</tool_call>'),
    )
    assert user.parts == (
        TextPart("<tool_response>\nsunny\n18 C\n</tool_response>"),
        IMAGE,
        TextPart("And?"),
    )


@pytest.mark.parametrize(
    ("texts", "is_error", "text"),
    [((), False, ""), (("a", "b"), False, "a\nb"), (("no city",), True, "Error: no city")],
)
def test_it_joins_a_results_text_and_marks_errors(
    texts: tuple[str, ...], is_error: bool, text: str
) -> None:
    parts = tuple(map(TextPart, texts))
    assert result_text(ToolResultPart(call_id="1", parts=parts, is_error=is_error)) == text


def test_it_names_the_formats_when_a_parser_has_none() -> None:
    with pytest.raises(
        TandemError, match="'abacus' has no format for; those with one: hermes"
    ) as e:
        require_format("m", "abacus")
    assert e.value.code is ErrorCode.ENGINE_FAILED
