"""From the Chat request to the canonical one."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.chat.parse import another_choice, image_sources, to_request
from gateway.dialects.chat.wire import decode_chat
from gateway.dialects.context import ParseContext
from gateway.dialects.placeholder import NOTICE, OMITTED, REMINDER
from gateway.dialects.sampling import MAX_INT
from inference.errors import TandemError
from inference.request import (
    GenerationRequest,
    ImagePart,
    Lane,
    Message,
    Owner,
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

TURN: dict[str, Any] = {"role": "user", "content": "hi"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}
PICTURE = ImagePart("image/png", b"png")


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def context(**fields: Any) -> ParseContext:
    defaults: dict[str, Any] = {
        "request_id": "r1",
        "model": "m",
        "deadline_s": 9.0,
        "context_tokens": 2048,
    }
    return ParseContext(**(defaults | fields))


def parsed(
    told: ParseContext | None = None, images: tuple[ImagePart, ...] = (), **fields: Any
) -> GenerationRequest:
    body = decode_chat({"model": "m", "messages": [TURN]} | fields).body
    return to_request(body, told or context(), images)


def turns(*messages: dict[str, Any]) -> tuple[Message, ...]:
    return parsed(messages=list(messages)).messages


def sampling(**fields: Any) -> Sampling:
    return parsed(**fields).sampling


def said(role: Role, *texts: str) -> Message:
    return Message(role=role, parts=tuple(map(TextPart, texts)))


def test_what_the_body_does_not_say_comes_from_the_context() -> None:
    owner = Owner(team_id=1, key_id="k")
    request = parsed(context(lane=Lane.FLEX, owner=owner, cache_salt="s"))
    assert (request.id, request.model, request.deadline_s) == ("r1", "m", 9.0)
    assert (request.lane, request.owner, request.cache_salt) == (Lane.FLEX, owner, "s")
    assert request.choice == 0


def test_every_sampling_field_reaches_the_engine() -> None:
    assert sampling(
        max_tokens=9,
        min_tokens=2,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        seed=7,
        stop="END",
        frequency_penalty=0.2,
        presence_penalty=-0.3,
        repetition_penalty=1.1,
        logit_bias={"5": 1},
        logprobs=True,
        top_logprobs=3,
    ) == Sampling(
        max_tokens=9,
        min_tokens=2,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        seed=7,
        stop=("END",),
        frequency_penalty=0.2,
        presence_penalty=-0.3,
        repetition_penalty=1.1,
        logit_bias={"5": 1.0},
        logprobs=3,
    )


def test_without_a_length_the_answer_may_fill_the_context() -> None:
    assert sampling() == Sampling(max_tokens=2048, cut_to_context=True)


def test_the_newer_name_of_the_length_wins() -> None:
    assert sampling(max_tokens=9, max_completion_tokens=5) == Sampling(max_tokens=5)


def test_log_probabilities_of_the_taken_tokens_alone_can_be_asked_for() -> None:
    assert sampling(logprobs=True).logprobs == 0
    assert sampling(logprobs=False).logprobs is None


def test_several_answers_have_no_more_log_probabilities_than_fit_into_memory() -> None:
    fields = {"n": 100, "logprobs": True, "top_logprobs": 19}
    assert sampling(**fields, max_completion_tokens=1000).logprobs == 19
    with pytest.raises(TandemError, match="lower `n`, `top_logprobs`") as refused:
        sampling(**fields, max_completion_tokens=1001)
    assert refused.value.param == "logprobs"
    # One answer is never refused for them.
    assert sampling(logprobs=True, top_logprobs=20, max_completion_tokens=2**31 - 1)


def test_no_limit_is_not_the_models_default() -> None:
    assert sampling(top_k=0).top_k == MAX_INT
    assert sampling().top_k is None


def test_a_share_of_nothing_leaves_the_likeliest_token() -> None:
    top_p = sampling(top_p=0).top_p
    assert top_p is not None
    assert 0 < top_p < 0.001


def test_leading_system_messages_are_one_turn_by_lines() -> None:
    developer = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
    assert turns({"role": "system", "content": "Be kind."}, developer, TURN) == (
        said(Role.SYSTEM, "Be kind.\nBe brief."),
        said(Role.USER, "hi"),
    )


def test_a_later_system_message_stays_where_it_is() -> None:
    later = {"role": "system", "content": "Now in French."}
    assert turns(TURN, later, TURN) == (
        said(Role.USER, "hi"),
        said(Role.SYSTEM, "Now in French."),
        said(Role.USER, "hi"),
    )


def test_neighbours_of_one_role_are_one_turn() -> None:
    assert turns(TURN, TURN) == (said(Role.USER, "hi", "hi"),)


def test_an_empty_answer_is_left_out_and_an_empty_question_is_not() -> None:
    assert turns(TURN | {"content": ""}) == (said(Role.USER, ""),)
    assert turns(TURN, {"role": "assistant", "content": ""}) == (said(Role.USER, "hi"),)


def test_a_conversation_that_says_nothing_is_refused() -> None:
    with pytest.raises(TandemError) as caught:
        turns({"role": "system", "content": ""})
    assert caught.value.param == "messages"


def test_calls_results_and_reasoning_are_given_back() -> None:
    call = {"id": "c1", **function("f", arguments='{"a": 1.10}')}
    answer = {
        "role": "assistant",
        "content": "Let me look.",
        "reasoning_content": "hm",
        "reasoning": "hm",
        "tool_calls": [call, call | {"id": "c2"}],
    }
    result = {"role": "tool", "tool_call_id": "c2", "content": "18"}
    other = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "19"}]}
    assert turns(TURN, answer, result, other, TURN) == (
        said(Role.USER, "hi"),
        Message(
            role=Role.ASSISTANT,
            parts=(
                ThinkingPart("hm"),
                TextPart("Let me look."),
                ToolCallPart(id="c1", name="f", arguments='{"a": 1.10}'),
                ToolCallPart(id="c2", name="f", arguments='{"a": 1.10}'),
            ),
        ),
        Message(
            role=Role.USER,
            parts=(
                ToolResultPart(call_id="c2", parts=(TextPart("18"),)),
                ToolResultPart(call_id="c1", parts=(TextPart("19"),)),
                TextPart("hi"),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("written", "given_back"),
    [
        ("", "{}"),
        ('{"a": 12345678901234567890}', '{"a": 12345678901234567890}'),
        ("[1]", '{"__malformed_arguments__":"[1]"}'),
        ('{"a":', '{"__malformed_arguments__":"{\\"a\\":"}'),
        ("[" * 100_000, None),
    ],
)
def test_bug_10_arguments_are_always_an_object(written: str, given_back: str | None) -> None:
    call = {"id": "c1", **function("f", arguments=written)}
    result = {"role": "tool", "tool_call_id": "c1", "content": ""}
    answer = turns(TURN, {"role": "assistant", "tool_calls": [call]}, result)[1]
    (part,) = answer.parts
    assert isinstance(part, ToolCallPart)
    assert part.arguments == (given_back or f'{{"__malformed_arguments__":"{written}"}}')


def test_a_refusal_is_what_the_assistant_said() -> None:
    parts = [{"type": "refusal", "refusal": "No."}]
    assert turns(TURN, {"role": "assistant", "content": parts})[1] == said(Role.ASSISTANT, "No.")
    whole = {"role": "assistant", "content": None, "refusal": "No."}
    assert turns(TURN, whole)[1] == said(Role.ASSISTANT, "No.")


def test_images_are_named_by_their_place_and_taken_in_order() -> None:
    inline = {"type": "image_url", "image_url": "data:image/png;base64,AAAA"}
    call = {"id": "c1", **function("f", arguments="{}")}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [inline]},
    ]
    body = decode_chat({"model": "m", "messages": messages}).body
    assert [(source.path, source.url) for source in image_sources(body)] == [
        ("messages[0].content[1].image_url.url", "https://example.com/a.png"),
        ("messages[2].content[0].image_url.url", "data:image/png;base64,AAAA"),
    ]
    other = ImagePart("image/png", b"other")
    request = to_request(body, context(vision=True), [PICTURE, other])
    assert request.messages[0].parts == (TextPart("look"), PICTURE)
    assert request.messages[2].parts == (ToolResultPart(call_id="c1", parts=(other,)),)


def test_a_model_without_vision_is_told_so() -> None:
    request = parsed(messages=[{"role": "user", "content": [IMAGE]}])
    assert request.messages == (
        said(Role.SYSTEM, NOTICE),
        Message(role=Role.USER, parts=(OMITTED, REMINDER)),
    )


def test_images_are_refused_where_the_catalogue_says_so() -> None:
    with pytest.raises(TandemError) as caught:
        parsed(
            context(images_without_vision="refuse"),
            messages=[{"role": "user", "content": [IMAGE]}],
        )
    assert caught.value.param == "messages[0].content[0]"


def test_tools_are_canonical() -> None:
    tool = function("f", description="d", parameters={"properties": {}}, strict=True)
    request = parsed(tools=[tool, function("g")])
    assert request.tools == (
        Tool(name="f", schema={"type": "object", "properties": {}}, description="d", strict=True),
        Tool(name="g", schema={"type": "object", "properties": {}}),
    )
    assert request.tool_choice == ToolChoice()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", ToolChoice(mode=ToolMode.NONE)),
        ("auto", ToolChoice(mode=ToolMode.AUTO)),
        ("required", ToolChoice(mode=ToolMode.ANY)),
        (function("g"), ToolChoice(mode=ToolMode.NAMED, name="g")),
    ],
)
def test_choices_among_tools(choice: Any, expected: ToolChoice) -> None:
    request = parsed(tools=[function("f"), function("g")], tool_choice=choice)
    assert request.tool_choice == expected
    assert len(request.tools) == 2


def test_only_allowed_tools_are_told() -> None:
    allowed = {"mode": "required", "tools": [function("g")]}
    request = parsed(
        tools=[function("f"), function("g")],
        tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
    )
    assert [tool.name for tool in request.tools] == ["g"]
    assert request.tool_choice == ToolChoice(mode=ToolMode.ANY)


def test_parallel_calls_can_be_switched_off() -> None:
    assert not parsed(tools=[function("f")], parallel_tool_calls=False).tool_choice.parallel


@pytest.mark.parametrize(
    ("format_", "schema"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object", "additionalProperties": True}),
        (
            {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "array"}}},
            {"type": "array"},
        ),
    ],
)
def test_formats_are_schemas(format_: Any, schema: dict[str, Any] | None) -> None:
    assert parsed(response_format=format_).output_schema == schema


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, True),
        ({"enable_thinking": False, "reasoning_effort": "high"}, False),
        (
            {"chat_template_kwargs": {"enable_thinking": False}, "thinking": {"type": "enabled"}},
            False,
        ),
        ({"chat_template_kwargs": {"thinking": False}}, False),
        ({"thinking": {"type": "disabled"}}, False),
        ({"reasoning": {"enabled": False, "effort": "high"}}, False),
        ({"reasoning": {"effort": "none"}}, False),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "minimal"}, True),
    ],
)
def test_thinking_is_switched_in_every_spelling(fields: dict[str, Any], thinks: bool) -> None:
    assert parsed(context(reasoning="default_on"), **fields).thinking is thinks
    if fields and thinks:
        assert parsed(context(reasoning="optional"), **fields).thinking is True


def test_what_a_model_cannot_do_is_not_asked_of_it() -> None:
    assert parsed(context(reasoning="none"), enable_thinking=True).thinking is False
    assert parsed(context(reasoning="always"), reasoning_effort="none").thinking is True


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "enabled", "budget_tokens": 64}},
        {"reasoning": {"enabled": True, "max_tokens": 64}},
    ],
)
def test_thoughts_can_be_bounded(fields: dict[str, Any]) -> None:
    assert parsed(context(reasoning="optional"), **fields).thinking_budget_tokens == 64
    assert parsed(context(reasoning="none"), **fields).thinking_budget_tokens is None


def test_other_choices_are_requests_of_their_own_with_other_seeds() -> None:
    first = parsed(n=3, seed=2**63 - 1)
    other = another_choice(first, 2, "r3")
    assert (other.id, other.choice) == ("r3", 2)
    assert other.sampling.seed == -(2**63) + 1
    assert other.messages == first.messages
    assert another_choice(parsed(n=2), 1, "r2").sampling.seed is None


def test_other_choices_pay_for_the_prompt_unless_they_share_it() -> None:
    for shares_prompt in (True, False):
        first = parsed(context(shares_prompt=shares_prompt), n=2)
        assert first.counts_prompt
        assert another_choice(first, 1, "r2").counts_prompt is not shares_prompt


ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "auto", "tools": [function("f"), function("g")]},
}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": function("f")}, "tool_choice.function.name"),
        (
            {"tools": [function("f")], "tool_choice": ALLOWED},
            "tool_choice.allowed_tools.tools[1].function.name",
        ),
    ],
)
def test_a_choice_of_a_tool_that_is_not_there_is_refused(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(TandemError) as caught:
        parsed(**fields)
    assert (caught.value.param, caught.value.reason) == (param, "invalid_value")


@pytest.mark.parametrize("choice", ["required", function("now")])
def test_a_tool_that_the_server_runs_may_be_demanded(choice: Any) -> None:
    request = parsed(context(server_tools=True), tool_choice=choice)
    assert request.tool_choice.mode in (ToolMode.ANY, ToolMode.NAMED)
    assert not request.can_pause
