"""From the Responses request to the canonical one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.dialects.context import ParseContext
from gateway.dialects.responses.items import input_items, output_items
from gateway.dialects.responses.parse import image_sources, put_in, references, to_request
from gateway.dialects.responses.wire import decode
from inference.errors import TandemError
from inference.fold import Answer
from inference.request import (
    GenerationRequest,
    ImagePart,
    Lane,
    Message,
    Role,
    Sampling,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolMode,
    ToolResultPart,
)
from tests.unit.gateway.dialects.responses.runs import END, ID

PNG = ImagePart(media_type="image/png", data=b"png")
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
USER = {"role": "user", "content": "hi"}


def context(**fields: Any) -> ParseContext:
    return ParseContext(
        request_id=ID, model="m", deadline_s=9.0, **({"context_tokens": 100} | fields)
    )


def read(
    given: Any = "hi",
    *,
    where: ParseContext | None = None,
    images: Sequence[ImagePart] = (),
    history: Sequence[dict[str, Any]] = (),
    **fields: Any,
) -> GenerationRequest:
    body, _ = decode({"model": "m", "input": given} | fields)
    return to_request(body, where or context(), images, history)


def turn(role: Role, *parts: Any) -> Message:
    return Message(role=role, parts=parts)


def refused(given: Any, **fields: Any) -> tuple[str | None, str]:
    with pytest.raises(TandemError) as caught:
        read(given, **fields)
    return caught.value.param, caught.value.message


def test_a_text_is_what_the_user_says() -> None:
    assert read("hi").messages == (turn(Role.USER, TextPart("hi")),)


def test_instructions_come_first_and_developers_speak_for_the_system() -> None:
    request = read([{"role": "developer", "content": "Be kind."}, USER], instructions="Be brief.")

    assert request.messages == (
        turn(Role.SYSTEM, TextPart("Be brief."), TextPart("Be kind.")),
        turn(Role.USER, TextPart("hi")),
    )


def test_an_assistants_reasoning_text_and_calls_are_one_turn() -> None:
    reasoning: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": None}
    thought = reasoning | {"content": [{"type": "reasoning_text", "text": "Hm."}]}
    said = {
        "type": "message",
        "id": "msg",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
    }

    request = read([USER, thought, said, CALL, OUTPUT, reasoning], tools=[WEATHER])

    assert request.messages == (
        turn(Role.USER, TextPart("hi")),
        turn(
            Role.ASSISTANT,
            ThinkingPart("Hm."),
            TextPart("Let me see."),
            ToolCallPart(id="c1", name="weather", arguments='{"a": 1}'),
        ),
        turn(Role.USER, ToolResultPart(call_id="c1", parts=(TextPart("sunny"),))),
    )


def test_a_summary_stands_for_the_reasoning() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}

    assert read([USER, thought]).messages[1] == turn(Role.ASSISTANT, ThinkingPart("Hm."))


@pytest.mark.parametrize("arguments", ["{", "[]", "nonsense", "[" * 100_000])
def test_arguments_that_are_no_object_are_told_as_one(arguments: str) -> None:
    call = CALL | {"arguments": arguments}

    (part,) = read([USER, call, OUTPUT]).messages[1].parts

    assert isinstance(part, ToolCallPart)
    assert part.arguments.startswith('{"__malformed_arguments__":')


@pytest.mark.parametrize(
    ("items", "param", "words"),
    [
        ([USER, CALL], "input[1]", "No tool output found for function call c1."),
        ([USER, OUTPUT], "input[1].call_id", "No tool call found for function call output"),
        ([USER, CALL, OUTPUT, OUTPUT], "input[3].call_id", "more than one output"),
        ([USER, CALL, CALL, OUTPUT], "input[2].call_id", "must be unique"),
        ([{"role": "user", "content": ""}], "input", "at least one message"),
        ([{"type": "item_reference", "id": "msg_1"}], "input[0].id", "'msg_1' not found"),
        (
            [{"role": "assistant", "content": [{"type": "input_image", "image_url": "u"}]}],
            "input[0].content[0]",
            "only be in `user` messages",
        ),
    ],
)
def test_bug_32_items_that_do_not_fit_together_are_refused(
    items: list[Any], param: str, words: str
) -> None:
    named, message = refused(items)

    assert named == param
    assert words in message


def test_bug_24_the_conversation_before_is_told_with_its_calls() -> None:
    call = ToolCallPart(id="0193f5a2-2222-7aaa-8bbb-0123456789ab", name="weather", arguments="{}")
    answer = Answer(parts=(ThinkingPart("Hm."), call), finished=END)
    history = input_items(ID, "How is the weather?") + output_items(ID, answer, {})
    result = OUTPUT | {"call_id": "call_0193f5a222227aaa8bbb0123456789ab"}

    messages = read([result], history=history, instructions="Be brief.").messages

    assert messages == (
        turn(Role.SYSTEM, TextPart("Be brief.")),
        turn(Role.USER, TextPart("How is the weather?")),
        turn(
            Role.ASSISTANT,
            ThinkingPart("Hm."),
            ToolCallPart(id=result["call_id"], name="weather", arguments="{}"),
        ),
        turn(Role.USER, ToolResultPart(call_id=result["call_id"], parts=(TextPart("sunny"),))),
    )


def test_a_call_that_was_left_open_before_is_named_by_the_previous_response() -> None:
    param, message = refused("hi", history=[USER, CALL])

    assert param == "previous_response_id"
    assert "No tool output found for function call c1." in message


def test_a_referenced_item_is_put_in_its_place() -> None:
    asked = {"model": "m", "input": [USER, {"type": "item_reference", "id": "msg_1"}, USER]}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "content": "Yes?"}
    assert references(decode(asked).body) == ["msg_1"]

    whole = put_in(asked, {"msg_1": said})

    assert whole == asked | {"input": [USER, said, USER]}


def picture(url: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": "auto"}


SHOWN = [
    {"role": "user", "content": [{"type": "input_text", "text": "See:"}, picture("http://x/1")]},
    CALL,
    OUTPUT | {"output": [picture("data:image/png;base64,AA==")]},
]


def test_images_are_named_in_order_and_put_in_their_places() -> None:
    body, _ = decode({"model": "m", "input": SHOWN})
    history = [{"role": "user", "content": [picture("http://x/0")]}]

    sources = image_sources(body, history)

    assert [(source.path, source.url) for source in sources] == [
        ("previous_response_id.content[0].image_url", "http://x/0"),
        ("input[0].content[1].image_url", "http://x/1"),
        ("input[2].output[0].image_url", "data:image/png;base64,AA=="),
    ]
    request = to_request(body, context(vision=True), [PNG] * 3, history)
    assert request.messages[0].parts == (PNG, TextPart("See:"), PNG)
    assert request.messages[2].parts == (ToolResultPart(call_id="c1", parts=(PNG,)),)


def test_a_model_without_vision_is_told_of_images() -> None:
    messages = read(SHOWN).messages

    assert messages[0].role is Role.SYSTEM
    assert "You have no vision" in messages[0].parts[0].text  # type: ignore[union-attr]
    assert len(messages[1].parts) == 3


def test_images_can_be_refused() -> None:
    param, message = refused(SHOWN, where=context(images_without_vision="refuse"))

    assert param == "input[0].content[1].image_url"
    assert "has no vision" in message


def test_an_answer_without_a_limit_may_fill_the_context() -> None:
    assert read().sampling == Sampling(max_tokens=100, cut_to_context=True)


def test_sampling_is_what_was_asked_for() -> None:
    request = read(
        max_output_tokens=7,
        temperature=0.5,
        top_p=0.25,
        top_k=0,
        min_p=0.5,
        repetition_penalty=1.5,
        seed=3,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
    )

    assert request.sampling == Sampling(
        max_tokens=7,
        temperature=0.5,
        top_p=0.25,
        top_k=2**31 - 1,
        min_p=0.5,
        repetition_penalty=1.5,
        seed=3,
        logprobs=2,
    )


TOOL = Tool(name="weather", schema={"type": "object"})
TIME = {"type": "function", "name": "time", "strict": True, "description": "Now."}


def test_tools_that_nobody_here_can_run_are_left_out() -> None:
    request = read(tools=[{"type": "web_search"}, WEATHER, TIME])

    time = Tool(
        name="time", schema={"type": "object", "properties": {}}, description="Now.", strict=True
    )
    assert request.tools == (TOOL, time)


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("auto", ToolChoice()),
        ("none", ToolChoice(mode=ToolMode.NONE)),
        ("required", ToolChoice(mode=ToolMode.ANY)),
        (
            {"type": "function", "name": "weather"},
            ToolChoice(mode=ToolMode.NAMED, name="weather"),
        ),
    ],
)
def test_every_choice_among_tools_is_understood(choice: Any, wanted: ToolChoice) -> None:
    assert read(tools=[WEATHER], tool_choice=choice).tool_choice == wanted


def test_only_allowed_tools_are_told() -> None:
    request = read(
        tools=[WEATHER, TIME],
        tool_choice={
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "weather"}],
        },
        parallel_tool_calls=False,
    )

    assert request.tools == (TOOL,)
    assert request.tool_choice == ToolChoice(mode=ToolMode.ANY, parallel=False)


def test_structured_output_is_a_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = {"type": "json_schema", "name": "a", "schema": schema, "strict": True}

    assert read(text={"format": wanted}).output_schema == schema
    assert read(text={"format": {"type": "json_object"}}).output_schema == {"type": "object"}
    assert read(text={"format": {"type": "text"}}).output_schema is None


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, True),
        ({"reasoning": {"effort": "none"}}, False),
        ({"reasoning": {"effort": "low"}}, True),
        ({"reasoning": {"effort": "high"}, "enable_thinking": False}, False),
    ],
)
def test_reasoning_is_switched_by_its_effort(fields: dict[str, Any], *, thinks: bool) -> None:
    assert read(where=context(reasoning="default_on"), **fields).thinking is thinks


def test_the_lane_is_the_contexts() -> None:
    assert read(where=context(lane=Lane.FLEX)).lane is Lane.FLEX


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("required", "only when `tools` are given"),
        ({"type": "function", "name": "time"}, "'time' not found"),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "time"}],
            },
            "'time' not found",
        ),
    ],
)
def test_a_choice_of_a_tool_that_is_not_there_is_refused(choice: Any, words: str) -> None:
    param, message = refused("hi", tool_choice=choice)
    assert param == "tool_choice"
    assert words in message


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "now"}])
def test_a_tool_that_the_server_runs_may_be_demanded(choice: Any) -> None:
    request = read(where=context(server_tools=True), tool_choice=choice)
    assert request.tool_choice.mode in (ToolMode.ANY, ToolMode.NAMED)
    assert not request.can_pause
