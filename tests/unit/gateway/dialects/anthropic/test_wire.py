"""The Messages request: what is accepted, and the words of what is not."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.anthropic.wire import (
    SERVING_FIELDS,
    MessagesBody,
    decode_count,
    decode_messages,
)
from gateway.dialects.unknown import ignored_header
from inference.errors import ErrorCode, TandemError

TURN: dict[str, Any] = {"role": "user", "content": "hi"}
MINIMAL: dict[str, Any] = {"model": "m", "max_tokens": 5, "messages": [TURN]}
MARKED = {"cache_control": {"type": "ephemeral"}}


def with_content(*content: Any) -> dict[str, Any]:
    return MINIMAL | {"messages": [{"role": "user", "content": list(content)}]}


def refusal(obj: dict[str, Any], **options: Any) -> str:
    with pytest.raises(TandemError) as caught:
        decode_messages(obj, **options)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    return caught.value.message


TEXT = {"type": "text", "text": "a"}
FORMAT = {"type": "json_schema", "schema": {"type": "object"}}

REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({}, "model: Field required"),
    ({"model": "m"}, "max_tokens: Field required"),
    ({"model": "m", "max_tokens": 5}, "messages: Field required"),
    (MINIMAL | {"model": None}, "model: Input should be a valid string"),
    (MINIMAL | {"model": ""}, "model: String should have at least 1 character"),
    (MINIMAL | {"max_tokens": "5"}, "max_tokens: Input should be a valid integer"),
    (MINIMAL | {"max_tokens": True}, "max_tokens: Input should be a valid integer"),
    (MINIMAL | {"max_tokens": 5.5}, "max_tokens: Input should be a valid integer"),
    (MINIMAL | {"max_tokens": -1}, "max_tokens: Input should be greater than or equal to 0"),
    (
        MINIMAL | {"max_tokens": 10**30},
        "max_tokens: Input should be less than or equal to 2147483647",
    ),
    (MINIMAL | {"messages": []}, "messages: at least one message is required"),
    (MINIMAL | {"messages": "hi"}, "messages: Input should be a valid list"),
    (MINIMAL | {"messages": [TURN, 1]}, "messages.1: Input should be an object"),
    (MINIMAL | {"messages": [{"content": "hi"}]}, "messages.0.role: Field required"),
    (
        MINIMAL | {"messages": [TURN | {"role": "tool"}]},
        "messages.0.role: Input should be 'user', 'assistant' or 'system'",
    ),
    (MINIMAL | {"messages": [{"role": "user"}]}, "messages.0.content: Field required"),
    (
        MINIMAL | {"messages": [TURN | {"content": 5}]},
        "messages.0.content: Input should be a string or a list of content blocks",
    ),
    (
        MINIMAL | {"messages": [TURN | {"content": ""}]},
        "messages.0.content: message content must be non-empty",
    ),
    (with_content(), "messages.0.content: message content must be non-empty"),
    (with_content("a"), "messages.0.content.0: Input should be an object"),
    (with_content({"text": "a"}), "messages.0.content.0.type: Field required"),
    (with_content({"type": 5}), "messages.0.content.0.type: Input should be 'text'"),
    (with_content({"type": "text"}), "messages.0.content.0.text: Field required"),
    (
        with_content(TEXT, {"type": "text", "text": ["a"]}),
        "messages.0.content.1.text: Input should be a valid string",
    ),
    (
        with_content({"type": "text", "text": ""}),
        "messages.0.content.0.text: text content blocks must be non-empty",
    ),
    (
        with_content({"type": "document {x}"}),
        "messages.0.content.0: Unsupported content block type: 'document {x}'",
    ),
    (MINIMAL | {"system": 5}, "system: Input should be a string or a list of content blocks"),
    (
        MINIMAL | {"system": [TEXT, {"type": "image"}]},
        "system.1: Unsupported content block type: 'image'",
    ),
    (MINIMAL | {"stream": "true"}, "stream: Input should be a valid boolean"),
    (MINIMAL | {"stream": 1}, "stream: Input should be a valid boolean"),
    (MINIMAL | {"temperature": 2.1}, "temperature: Input should be less than or equal to 2"),
    (MINIMAL | {"temperature": "1"}, "temperature: Input should be a valid number"),
    (MINIMAL | {"temperature": True}, "temperature: Input should be a valid number"),
    (MINIMAL | {"top_p": 0}, "top_p: Input should be greater than 0"),
    (MINIMAL | {"top_p": 1.5}, "top_p: Input should be less than or equal to 1"),
    (MINIMAL | {"top_k": -2}, "top_k: Input should be greater than or equal to -1"),
    (MINIMAL | {"top_k": 1.5}, "top_k: Input should be a valid integer"),
    (MINIMAL | {"stop_sequences": "a"}, "stop_sequences: Input should be a valid list"),
    (MINIMAL | {"stop_sequences": [1]}, "stop_sequences.0: Input should be a valid string"),
    (
        MINIMAL | {"stop_sequences": ["a", ""]},
        "stop_sequences.1: each stop sequence must be non-empty",
    ),
    (
        MINIMAL | {"thinking": {"type": "on"}},
        "thinking.type: Input should be 'enabled', 'adaptive', 'disabled' or 'between_tools'",
    ),
    (MINIMAL | {"thinking": True}, "thinking: Input should be an object"),
    (
        MINIMAL | {"thinking": {"type": "enabled", "budget_tokens": "1024"}},
        "thinking.budget_tokens: Input should be a valid integer",
    ),
    (
        MINIMAL | {"thinking": {"type": "enabled", "budget_tokens": 0}},
        "thinking.budget_tokens: Input should be greater than or equal to 1",
    ),
    (MINIMAL | {"enable_thinking": "yes"}, "enable_thinking: Input should be a valid boolean"),
    (MINIMAL | {"output_config": []}, "output_config: Input should be an object"),
    (
        MINIMAL | {"output_config": {"format": {"type": "json_object"}}},
        "output_config.format.type: Input should be 'json_schema'",
    ),
    (
        MINIMAL | {"output_config": {"format": {"type": "json_schema"}}},
        "output_config.format.schema: Field required",
    ),
    (
        MINIMAL | {"output_format": {"type": "json_schema", "schema": "{}"}},
        "output_format.schema: Input should be a valid dictionary",
    ),
    (
        MINIMAL | {"cache_control": {"type": "persistent"}},
        "cache_control.type: Input should be 'ephemeral'",
    ),
    (
        MINIMAL | {"cache_control": {"type": "ephemeral", "ttl": "1d"}},
        "cache_control.ttl: Input should be '5m' or '1h'",
    ),
]


@pytest.mark.parametrize(("obj", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
def test_it_refuses_a_wrong_field_by_its_path(obj: dict[str, Any], message: str) -> None:
    assert refusal(obj) == message


def test_it_names_only_the_first_of_many_errors() -> None:
    assert refusal(MINIMAL | {"messages": [1] * 1000}) == "messages.0: Input should be an object"


def test_it_refuses_more_stop_sequences_than_an_engine_can_watch_for() -> None:
    message = refusal(MINIMAL | {"stop_sequences": ["a"] * 257})
    assert message.startswith("stop_sequences: List should have at most 256 items")


def test_it_reads_strings_as_one_text_block() -> None:
    body, _ = decode_messages(MINIMAL | {"system": "be brief"})
    assert [block.model_dump()["text"] for block in body.messages[0].content] == ["hi"]
    assert body.system is not None
    assert [block.text for block in body.system] == ["be brief"]


def test_it_accepts_every_role_in_any_order() -> None:
    roles = ["assistant", "system", "user", "user", "assistant"]
    turns = [{"role": role, "content": [TEXT]} for role in roles]
    body, _ = decode_messages(MINIMAL | {"messages": turns})
    assert [message.role for message in body.messages] == roles


@pytest.mark.parametrize("marked", [True, False])
def test_max_tokens_zero_needs_a_cache_mark(marked: bool) -> None:
    asked = MINIMAL | {"max_tokens": 0} | (MARKED if marked else {})
    if marked:
        assert decode_messages(asked).body.max_tokens == 0
        return
    with pytest.raises(TandemError, match="max_tokens: Input should be greater than or equal to 1"):
        decode_messages(asked)


def test_it_accepts_the_ends_of_every_range() -> None:
    decode_messages(MINIMAL | MARKED | {"max_tokens": 0, "temperature": 0, "top_p": 1, "top_k": -1})
    decode_messages(MINIMAL | {"max_tokens": 2**31 - 1, "temperature": 2, "top_p": 1e-6})


def test_it_accepts_null_for_whatever_is_optional() -> None:
    names = MessagesBody.model_fields.keys() - MINIMAL.keys() | {"container"}
    body, ignored = decode_messages(MINIMAL | dict.fromkeys(names))
    assert body == decode_messages(MINIMAL).body
    assert ignored == ()


def test_it_accepts_an_empty_list_of_tools_and_a_choice_of_none() -> None:
    for choice in ("auto", "none", {"type": "auto"}, {"type": "none"}):
        decode_messages(MINIMAL | {"tools": [], "tool_choice": choice})


def test_it_accepts_cache_control_and_citations_on_blocks() -> None:
    block = TEXT | {"cache_control": {"type": "ephemeral", "ttl": "1h"}, "citations": None}
    decode_messages(with_content(block) | {"system": [block]})


def test_it_accepts_fields_that_only_tune_serving_without_listing_them() -> None:
    obj = MINIMAL | {name: {"type": "adaptive"} for name in SERVING_FIELDS}
    assert decode_messages(obj, "reject").ignored == ()


def test_it_lists_what_it_ignored_in_order() -> None:
    obj = MINIMAL | {
        "zeal": 1,
        "mcp_servers": [{"type": "url"}],
        "container": "c",
        "output_config": {"effort": "low", "format": FORMAT},
        "output_format": FORMAT,
        "tools": [{"type": "web_search_20260209", "name": "web_search"}],
        "inference_geo": "eu",
    }
    assert decode_messages(obj).ignored == (
        "container",
        "inference_geo",
        "mcp_servers",
        "output_format",
        "zeal",
        "tools.0",
    )


def test_fields_that_are_honoured_are_not_listed() -> None:
    obj = MINIMAL | {
        "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
        "enable_thinking": True,
        "output_config": {"effort": "max", "task_budget": {"type": "tokens"}, "format": FORMAT},
        "cache_control": {"type": "ephemeral", "ttl": "1h"},
        "tools": [{"name": "f", "input_schema": {}, "defer_loading": True}],
        "tool_choice": {"type": "any"},
    }
    assert decode_messages(obj, "reject").ignored == ()


def test_the_older_spelling_of_the_output_format_is_honoured() -> None:
    assert decode_messages(MINIMAL | {"output_format": FORMAT}, "reject").ignored == ()


def test_tools_that_nobody_runs_are_listed_even_where_unknown_fields_are_rejected() -> None:
    obj = MINIMAL | {"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}
    assert decode_messages(obj, "reject").ignored == ("tools.0",)


def test_a_count_needs_no_max_tokens() -> None:
    body, _ = decode_count({"model": "m", "messages": [TURN]})
    assert (body.max_tokens, body.model) == (0, "m")


def test_bug_29_a_count_takes_the_whole_body_of_a_message() -> None:
    obj = MINIMAL | {"stream": True, "temperature": 1, "metadata": {"user_id": "u"}}
    counted, wanted = decode_count(obj), decode_messages(obj)
    assert dict(counted.body) == dict(wanted.body)
    assert counted.ignored == wanted.ignored


def test_a_count_checks_what_a_message_would() -> None:
    with pytest.raises(TandemError, match=r"^model: Field required$"):
        decode_count({"messages": [TURN]})
    with pytest.raises(TandemError, match=r"^max_tokens: Input should be a valid integer$"):
        decode_count(MINIMAL | {"max_tokens": "5"})


def test_a_whole_number_may_be_written_with_a_point() -> None:
    thinking = {"type": "enabled", "budget_tokens": 7.0}
    body, _ = decode_messages(MINIMAL | {"max_tokens": 5.0, "top_k": 4e1, "thinking": thinking})
    assert body.thinking is not None
    numbers = [body.max_tokens, body.top_k, body.thinking.budget_tokens]
    assert numbers == [5, 40, 7]
    assert {type(number) for number in numbers} == {int}


def test_bug_12_five_stop_sequences_are_no_error() -> None:
    body, _ = decode_messages(MINIMAL | {"stop_sequences": list("abcde")})
    assert body.stop_sequences == list("abcde")


def test_bug_27_and_28_betas_of_the_body_change_nothing() -> None:
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    assert decode_messages(MINIMAL | {"context_management": edits}, "reject").ignored == ()


def test_it_does_not_list_a_field_that_asks_for_nothing() -> None:
    assert decode_messages(MINIMAL | {"mcp_servers": [], "container": None}).ignored == ()


def test_it_rejects_an_unknown_field_with_the_way_out() -> None:
    message = refusal(MINIMAL | {"container": "c"}, unknown="reject")
    assert message == (
        "container: Extra inputs are not permitted. Model 'm' cannot honour `container`. "
        "Remove `container`, or have the operator set UNKNOWN_FIELDS to ignore."
    )


def test_it_reports_a_wrong_field_before_an_unknown_one() -> None:
    assert refusal({"foo": 1}, unknown="reject") == "model: Field required"


def test_ignored_names_cannot_break_out_of_a_header() -> None:
    many = ignored_header(["x" * 1_000_000 for _ in range(1000)])
    assert many.endswith(b", +980")
    assert len(many) < 1000
    assert ignored_header(("a", "b\r\nx: y", "é")) == b"a, b%0D%0Ax%3A%20y, %C3%A9"


def test_the_published_schema_takes_strings_where_the_parser_does() -> None:
    schema = MessagesBody.model_json_schema()
    content = schema["$defs"]["InputMessage"]["properties"]["content"]
    assert {"type": "string"} in content["anyOf"]
    choice = schema["properties"]["tool_choice"]["anyOf"]
    assert {"enum": ["auto", "none", "any", "required"], "type": "string"} in choice
