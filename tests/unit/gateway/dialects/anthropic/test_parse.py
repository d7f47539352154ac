"""From the Messages request to the canonical one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.dialects.anthropic.parse import to_request
from gateway.dialects.anthropic.wire import decode_messages
from gateway.dialects.context import ParseContext
from inference.request import GenerationRequest, Message, Role, Sampling, TextPart

CONTEXT = ParseContext(
    request_id="00000000-0000-4000-8000-000000000001",
    model="catalogue-id",
    deadline_s=1234.5,
    cache_salt="salt",
)


def parse(reasoning: str = "none", **fields: Any) -> GenerationRequest:
    body = {"model": "alias", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    context = replace(CONTEXT, reasoning=reasoning)
    return to_request(decode_messages(body | fields).body, context)


def turns(request: GenerationRequest) -> list[tuple[str, list[str]]]:
    return [
        (str(message.role), [part.text for part in message.parts if isinstance(part, TextPart)])
        for message in request.messages
    ]


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def test_it_takes_identity_from_the_context_and_the_rest_from_the_body() -> None:
    request = parse(temperature=0, top_p=0.5, top_k=7, stop_sequences=["\n\n", "END"])
    assert request == GenerationRequest(
        id=CONTEXT.request_id,
        model="catalogue-id",
        messages=(Message(role=Role.USER, parts=(TextPart("hi"),)),),
        sampling=Sampling(max_tokens=5, temperature=0.0, top_p=0.5, top_k=7, stop=("\n\n", "END")),
        deadline_s=1234.5,
        cache_salt="salt",
        thinking=False,
        can_pause=True,
    )


def test_what_is_not_said_is_left_to_the_model() -> None:
    assert parse().sampling == Sampling(max_tokens=5)


@pytest.mark.parametrize("off", [0, -1])
def test_a_top_k_that_is_off_is_no_limit_and_not_the_models_default(off: int) -> None:
    assert parse(top_k=off).sampling.top_k == 2**31 - 1


def test_system_entries_become_one_leading_turn_joined_by_line() -> None:
    request = parse(system=[text("a"), text("b")])
    assert turns(request) == [("system", ["a\nb"]), ("user", ["hi"])]


@pytest.mark.parametrize("nothing", [None, "", []])
def test_an_empty_system_prompt_is_no_turn(nothing: Any) -> None:
    assert turns(parse(system=nothing)) == [("user", ["hi"])]


def test_bug_15_the_billing_header_never_reaches_the_template() -> None:
    header = text("x-anthropic-billing-header: cc_version=2.1.332; cch=8f3a1;")
    assert turns(parse(system=[header])) == [("user", ["hi"])]
    assert turns(parse(system=[header, text("a")])) == turns(parse(system="a"))


def test_only_the_headers_line_is_dropped_where_more_follows() -> None:
    request = parse(system="x-anthropic-billing-header: cch=8f3a1;\nBe brief.")
    assert turns(request)[0] == ("system", ["Be brief."])


def test_bug_16_a_system_turn_stays_where_it_stands() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "system", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    assert turns(parse(system="s", messages=messages)) == [
        ("system", ["s"]),
        ("user", ["a"]),
        ("system", ["b"]),
        ("user", ["c"]),
    ]


def test_neighbours_of_one_role_are_merged_part_by_part() -> None:
    messages = [
        {"role": "system", "content": "t"},
        {"role": "user", "content": [text("a"), text("b")]},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"},
        {"role": "assistant", "content": "e"},
    ]
    assert turns(parse(system="s", messages=messages)) == [
        ("system", ["s", "t"]),
        ("user", ["a", "b", "c"]),
        ("assistant", ["d", "e"]),
    ]


def test_a_conversation_may_begin_and_end_with_the_assistant() -> None:
    messages = [{"role": "assistant", "content": "a"}]
    assert turns(parse(messages=messages)) == [("assistant", ["a"])]


def test_the_largest_legal_numbers_survive_the_transport() -> None:
    request = parse(max_tokens=2**31 - 1, top_k=2**31 - 1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=type(request)) == request


ENABLED, ADAPTIVE, DISABLED, BETWEEN = (
    {"thinking": {"type": kind}} for kind in ("enabled", "adaptive", "disabled", "between_tools")
)


@pytest.mark.parametrize(
    ("reasoning", "fields", "thinks"),
    [
        ("none", {}, False),
        ("none", ENABLED | {"enable_thinking": True}, False),
        ("always", {}, True),
        ("always", DISABLED | {"enable_thinking": False}, True),
        ("optional", {}, False),
        ("default_on", {}, True),
        ("optional", ENABLED, True),
        ("optional", ADAPTIVE, True),
        ("default_on", DISABLED, False),
        ("optional", BETWEEN, False),
        ("default_on", BETWEEN, True),
        ("optional", DISABLED | {"enable_thinking": True}, True),
        ("default_on", ENABLED | {"enable_thinking": False}, False),
        ("default_on", {"thinking": None, "enable_thinking": None}, True),
    ],
)
def test_bug_26_thinking_follows_the_model_then_the_request_then_the_default(
    reasoning: str, fields: dict[str, Any], thinks: bool
) -> None:
    assert parse(reasoning, **fields).thinking is thinks


def test_a_budget_is_carried_where_the_model_thinks() -> None:
    budget = {"type": "enabled", "budget_tokens": 2048}
    assert parse("optional", thinking=budget).thinking_budget_tokens == 2048
    assert parse("none", thinking=budget).thinking_budget_tokens is None
    assert parse("optional", thinking=budget, enable_thinking=False).thinking_budget_tokens is None


def test_an_output_schema_is_carried_in_both_spellings() -> None:
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    for request in (parse(output_config={"format": wanted}), parse(output_format=wanted)):
        assert request.output_schema == {"type": "object"}


def test_no_output_schema_is_none() -> None:
    assert parse(output_config={"effort": "max"}).output_schema is None


def test_max_tokens_zero_asks_for_no_answer() -> None:
    assert parse(max_tokens=0, cache_control={"type": "ephemeral"}).sampling.max_tokens == 0
