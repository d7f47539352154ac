"""Tools in both shapes, and every way to choose among them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.anthropic.parse import to_request
from gateway.dialects.anthropic.wire import decode_messages
from gateway.dialects.context import ParseContext
from inference.errors import TandemError
from inference.request import GenerationRequest, Tool, ToolChoice, ToolMode

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
F = {"name": "f", "description": "reads", "input_schema": SCHEMA}
G = {
    "type": "function",
    "function": {"name": "g", "description": "writes", "parameters": SCHEMA, "strict": True},
}
SEARCH = {"type": "web_search_20260209", "name": "web_search", "max_uses": 3}
CONTEXT = ParseContext(request_id="r", model="m", deadline_s=1)


def body_of(**fields: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": "hi"}]
    return {"model": "m", "max_tokens": 5, "messages": turns, **fields}


def parse(**fields: Any) -> GenerationRequest:
    return to_request(decode_messages(body_of(**fields)).body, CONTEXT)


def refusal(**fields: Any) -> str:
    with pytest.raises(TandemError) as caught:
        parse(**fields)
    return caught.value.message


def test_both_shapes_may_be_mixed() -> None:
    assert parse(tools=[F, G]).tools == (
        Tool(name="f", description="reads", schema=SCHEMA),
        Tool(name="g", description="writes", schema=SCHEMA, strict=True),
    )


def test_the_fields_that_only_tune_serving_change_nothing() -> None:
    tuned = {
        "type": "custom",
        "defer_loading": True,
        "eager_input_streaming": True,
        "allowed_callers": ["direct"],
    }
    assert parse(tools=[F | tuned]).tools == parse(tools=[F]).tools


def test_strict_is_carried() -> None:
    assert parse(tools=[F | {"strict": True}]).tools[0].strict is True


def test_examples_are_shown_to_the_model_in_the_schema() -> None:
    examples = [{"path": "/"}]
    [tool] = parse(tools=[F | {"input_examples": examples}]).tools
    assert tool.schema == SCHEMA | {"examples": examples}


@pytest.mark.parametrize(
    ("tool", "schema"),
    [
        ({"name": "f", "input_schema": {}}, {"type": "object"}),
        (
            {"name": "f", "input_schema": {"properties": {"a": {}}}},
            {"type": "object", "properties": {"a": {}}},
        ),
        ({"function": {"name": "f"}}, {"type": "object", "properties": {}}),
        (
            {"type": "function", "function": {"name": "f", "parameters": None}},
            {"type": "object", "properties": {}},
        ),
    ],
)
def test_a_schema_is_always_an_objects(tool: dict[str, Any], schema: dict[str, Any]) -> None:
    assert parse(tools=[tool]).tools == (Tool(name="f", schema=schema),)


def test_tools_that_nobody_here_runs_are_skipped_and_listed() -> None:
    toolset = {"type": "mcp_toolset", "mcp_server_name": "x"}
    obj = body_of(tools=[SEARCH, F, toolset, {"type": "bash_20250124", "name": "bash"}])
    body, ignored = decode_messages(obj)
    assert ignored == ("tools.0", "tools.2", "tools.3")
    assert [tool.name for tool in to_request(body, CONTEXT).tools] == ["f"]


def test_no_tools_are_fine() -> None:
    assert parse(tools=[]).tools == ()


REFUSALS: list[tuple[Any, str]] = [
    ({}, "tools: Input should be a valid list"),
    ([1], "tools.0: Input should be an object"),
    ([{"input_schema": {}}], "tools.0.name: Field required"),
    ([F, {"name": "g"}], "tools.1.input_schema: Field required"),
    ([F | {"input_schema": []}], "tools.0.input_schema: Input should be a valid dictionary"),
    (
        [F | {"input_schema": {"type": "array"}}],
        "tools.0.input_schema: the schema of a tool's arguments must have the type 'object'",
    ),
    (
        [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}],
        "tools.0.function.parameters: the schema of a tool's arguments must have the type 'object'",
    ),
    ([{"type": "function"}], "tools.0.function: Field required"),
    ([{"type": "function", "function": "f"}], "tools.0.function: Input should be an object"),
    ([{"type": 5, **F}], "tools.0.type: Input should be 'custom'"),
    ([{"type": "web_search", **F}], "tools.0.type: Input should be 'custom'"),
    ([F | {"strict": "yes"}], "tools.0.strict: Input should be a valid boolean"),
    ([F, F], "tools.1.name: Tool names must be unique: 'f'"),
    (
        [F, {"type": "function", "function": {"name": "f"}}],
        "tools.1.function.name: Tool names must be unique: 'f'",
    ),
    ([F | {"cache_control": {}}], "tools.0.cache_control.type: Field required"),
]


@pytest.mark.parametrize(("tools", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
def test_it_refuses_a_wrong_tool_by_its_path(tools: Any, message: str) -> None:
    assert refusal(tools=tools) == message


@pytest.mark.parametrize("name", ["", "a b", "é", "a" * 129, "a.b", "a\n"])
def test_it_refuses_a_name_that_no_client_could_send_back(name: str) -> None:
    assert refusal(tools=[F | {"name": name}]) == (
        "tools.0.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    )


def test_it_takes_the_longest_legal_name() -> None:
    name = "mcp__server__" + "a" * 115
    assert parse(tools=[F | {"name": name}]).tools[0].name == name


@pytest.mark.parametrize(
    ("choice", "canonical"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ({"type": "auto"}, ToolChoice()),
        ("none", ToolChoice(mode=ToolMode.NONE)),
        ({"type": "none"}, ToolChoice(mode=ToolMode.NONE)),
        ("any", ToolChoice(mode=ToolMode.ANY)),
        ("required", ToolChoice(mode=ToolMode.ANY)),
        ({"type": "any"}, ToolChoice(mode=ToolMode.ANY)),
        ({"type": "required"}, ToolChoice(mode=ToolMode.ANY)),
        ({"type": "tool", "name": "g"}, ToolChoice(mode=ToolMode.NAMED, name="g")),
        (
            {"type": "function", "function": {"name": "g"}},
            ToolChoice(mode=ToolMode.NAMED, name="g"),
        ),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            ToolChoice(parallel=False),
        ),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            ToolChoice(mode=ToolMode.ANY, parallel=False),
        ),
        (
            {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
            ToolChoice(mode=ToolMode.NAMED, name="f", parallel=False),
        ),
        ({"type": "auto", "name": "f"}, ToolChoice()),
    ],
)
def test_it_reads_every_way_to_choose(choice: Any, canonical: ToolChoice) -> None:
    assert parse(tools=[F, G], tool_choice=choice).tool_choice == canonical


@pytest.mark.parametrize("choice", ["auto", "none", {"type": "auto"}, {"type": "none"}])
def test_nothing_to_choose_from_is_fine_where_nothing_is_required(choice: Any) -> None:
    assert parse(tool_choice=choice, tools=[SEARCH]).tools == ()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (5, "tool_choice: Input should be an object"),
        ({}, "tool_choice.type: Field required"),
        ("f", "tool_choice.type: Input should be 'auto', 'none', 'any', 'required' or 'tool'"),
        ({"type": "tool"}, "tool_choice: the choice of a `tool` needs its `name`"),
        ({"type": "tool", "name": 5}, "tool_choice.name: Input should be a valid string"),
        ({"type": "tool", "name": "x"}, "tool_choice.name: Tool 'x' not found in provided tools"),
        (
            {"type": "tool", "name": "web_search"},
            "tool_choice.name: Tool 'web_search' not found in provided tools",
        ),
        (
            {"type": "auto", "disable_parallel_tool_use": 1},
            "tool_choice.disable_parallel_tool_use: Input should be a valid boolean",
        ),
    ],
)
def test_it_refuses_a_wrong_choice_by_its_path(choice: Any, message: str) -> None:
    assert refusal(tools=[F, SEARCH], tool_choice=choice) == message


@pytest.mark.parametrize("tools", [None, [], [SEARCH]])
@pytest.mark.parametrize("choice", ["any", "required", {"type": "any"}])
def test_a_tool_cannot_be_required_where_there_is_none(tools: Any, choice: Any) -> None:
    assert refusal(tools=tools, tool_choice=choice) == (
        "tool_choice: a tool can be required only when `tools` are given"
    )
