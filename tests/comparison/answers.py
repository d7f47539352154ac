"""What a server answers: messages, calls, streams, usage and counts."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from tests.acceptance.client import WHOLE_STREAM, Frame, names_of, text_of
from tests.comparison.requests import EPHEMERAL, called, result, text, turn
from tests.comparison.server import Check, Server, answered, expect, refused, shorten

WEATHER = {
    "name": "get_weather",
    "description": "Tell the weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
FUNCTION = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": WEATHER["input_schema"]},
}
_STRICT = WEATHER | {"strict": True}
_ASK = [turn(text("What is the weather in Rome?"))]
_CALLING = {
    "messages": _ASK,
    "max_tokens": 100,
    "tools": [WEATHER],
    "tool_choice": {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
}
_KEYS = {
    *("id", "type", "role", "model", "content"),
    *("stop_reason", "stop_sequence", "stop_details", "usage"),
}
_USAGE = {
    *("input_tokens", "output_tokens"),
    *("cache_read_input_tokens", "cache_creation_input_tokens"),
}


def forced(statement: str, **fields: Any) -> Check:
    """Return the check that a call is made, as its schema says."""

    def run(server: Server) -> None:
        _the_call(server.message(**_CALLING | fields))

    return Check(statement, run)


def _the_call(message: dict[str, Any]) -> dict[str, Any]:
    kinds = [block["type"] for block in message["content"]]
    expect(kinds == ["tool_use"], f"blocks: {', '.join(kinds)}")
    (block,) = message["content"]
    given = json.dumps(block["input"])
    is_right = block["name"] == "get_weather" and _is_weather(given)
    expect(is_right, f"`{block['name']}` with `{shorten(given)}`")
    expect(message["stop_reason"] == "tool_use", f"`stop_reason` `{message['stop_reason']}`")
    return dict(block)


def _prompt_tokens(usage: dict[str, Any]) -> int:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage.get(name) or 0 for name in names)


def has_every_key(server: Server) -> None:
    """Check the keys of a message and of its usage."""
    message = server.message()
    missing = sorted(_KEYS - message.keys())
    missing += [f"usage.{name}" for name in sorted(_USAGE - message["usage"].keys())]
    expect(not missing, f"without {', '.join(f'`{name}`' for name in missing)}")


def has_its_ids(server: Server) -> None:
    """Check the prefixes that clients look for."""
    own_id = server.message()["id"]
    expect(own_id.startswith("msg_"), f"`{shorten(own_id)}`")
    call_id = _the_call(server.message(**_CALLING))["id"]
    expect(call_id.startswith("toolu_"), f"`{shorten(call_id)}`")


def tells_stop_sequences(server: Server) -> None:
    """Check both forms of an answer that ran into a stop sequence."""
    wanted = {"stop_reason": "stop_sequence", "stop_sequence": "Paris"}
    message = server.message(stop_sequences=["Paris"])
    delta = _last(server.stream(stop_sequences=["Paris"]), "message_delta")["delta"]
    for told in (message, delta):
        shown = {name: told.get(name) for name in wanted}
        expect(shown == wanted, f"`{json.dumps(shown)}`")


def ends_at_max_tokens(server: Server) -> None:
    """Check the reason of an answer that was cut."""
    reason = server.message(max_tokens=3)["stop_reason"]
    expect(reason == "max_tokens", f"`{reason}`")


def matches_a_schema(server: Server) -> None:
    """Check structured output, streamed and whole."""
    wanted = {"type": "json_schema", "schema": WEATHER["input_schema"]}
    fields = {"output_config": {"format": wanted}, "max_tokens": 100}
    for said in (_said(server.message(**fields)), text_of(server.stream(**fields))):
        expect(_is_weather(said), f"`{shorten(said)}`")


def _is_weather(text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("city") in ("Paris", "Rome")


def _said(message: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in message["content"])


def calls_once(server: Server) -> None:
    """Check that `any` with parallel calls switched off is one call."""
    choice = {"type": "any", "disable_parallel_tool_use": True}
    _the_call(server.message(**_CALLING | {"tool_choice": choice}))


def calls_nothing(server: Server) -> None:
    """Check `none`."""
    message = server.message(**_CALLING | {"tool_choice": {"type": "none"}, "max_tokens": 16})
    kinds = [block["type"] for block in message["content"]]
    expect(kinds == ["text"], f"blocks: {', '.join(kinds)}")


def skips_server_tools(server: Server) -> None:
    """Check a tool that nobody here can run."""
    server.message(tools=[{"type": "web_search_20260209", "name": "web_search"}, WEATHER])


def tells_of_tools(server: Server) -> None:
    """Check that tools reach the model, though its chat template has no place for them."""
    expect(server.count(tools=[WEATHER]) > server.count(), "the prompt is the same without them")


def names_an_unenforceable_keyword(server: Server) -> None:
    """Check a schema that the engine's compiler of grammars cannot enforce."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 3}}}
    wanted = {"format": {"type": "json_schema", "schema": schema}}
    refused(server.post(output_config=wanted), 400, "invalid_request_error", "multipleOf")


def streams_arguments(server: Server) -> None:
    """Check that the fragments are several and make up the whole."""
    frames = server.stream(**_CALLING | {"tools": [_STRICT]})
    deltas = [frame.data["delta"] for frame in frames if frame.name == "content_block_delta"]
    pieces = [delta["partial_json"] for delta in deltas if delta["type"] == "input_json_delta"]
    expect(len(pieces) > 1, f"{len(pieces)} fragments")
    expect(_is_weather("".join(pieces)), f"the arguments are `{shorten(''.join(pieces))}`")


def streams_in_order(server: Server) -> None:
    """Check the events of an answer, and that each is named as its type."""
    frames = server.stream()
    expect(names_of(frames) == WHOLE_STREAM, ", ".join(names_of(frames)))
    unnamed = [frame.name for frame in frames if frame.data["type"] != frame.name]
    expect(not unnamed, f"of another type: {', '.join(unnamed)}")


def starts_with_a_message(server: Server) -> None:
    """Check the message of the first event, which strict clients read whole."""
    message = server.stream()[0].data["message"]
    missing = sorted(_KEYS - message.keys())
    expect(not missing, f"without {', '.join(f'`{name}`' for name in missing)}")
    expect(message["usage"]["input_tokens"] > 0, "no `input_tokens`")


def streams_the_same(server: Server) -> None:
    """Check that the pieces make up the whole answer, with the same usage."""
    whole, frames = server.message(), server.stream()
    expect(text_of(frames) == _said(whole), "another text")
    usage = _last(frames, "message_delta")["usage"]
    is_same = _prompt_tokens(usage) == _prompt_tokens(whole["usage"])
    expect(is_same, f"{_prompt_tokens(usage)} and {_prompt_tokens(whole['usage'])} prompt tokens")
    is_same = usage["output_tokens"] == whole["usage"]["output_tokens"]
    expect(is_same, "another number of tokens")


def _last(frames: list[Frame], name: str) -> dict[str, Any]:
    found = [frame.data for frame in frames if frame.name == name]
    expect(bool(found), f"no `{name}`")
    return found[-1]


def _never_seen() -> str:
    """Return a long text that is in no cache."""
    rules = " ".join(f"Rule {number}: never say {number * 7}." for number in range(80))
    return f"These are the rules of {uuid4()}. {rules}"


def tells_what_was_cached(server: Server) -> None:
    """Check that a repeated prompt comes from the cache, and is told without overlap."""
    asked = {"messages": [turn(text(_never_seen()))], "max_tokens": 1}
    total = server.count(**asked)
    server.message(**asked)
    again = server.message(**asked)["usage"]
    streamed = _last(server.stream(**asked), "message_delta")["usage"]
    for usage in (again, streamed):
        expect(bool(usage.get("cache_read_input_tokens")), "no `cache_read_input_tokens`")
        expect(_prompt_tokens(usage) == total, f"{_prompt_tokens(usage)} of {total} tokens")


def tells_what_was_written(server: Server) -> None:
    """Check that what stands before a mark is counted as written."""
    system = [text(_never_seen(), **EPHEMERAL)]
    usage = server.message(system=system, max_tokens=1)["usage"]
    expect(bool(usage.get("cache_creation_input_tokens")), "no `cache_creation_input_tokens`")


def writes_nothing_unasked(server: Server) -> None:
    """Check that without a mark nothing is told, and so billed, as written."""
    usage = server.message(system=_never_seen(), max_tokens=1)["usage"]
    written = usage.get("cache_creation_input_tokens")
    expect(not written, f"`cache_creation_input_tokens` is {written}")


def counts_as_it_reports(server: Server) -> None:
    """Check the count of prompts of every kind against what a call reports."""
    for fields in (
        {},
        {"system": "You are a geography teacher."},
        {"tools": [WEATHER]},
        {"tools": [WEATHER], "messages": called(result("toolu_1"))},
    ):
        counted = server.count(**fields)
        reported = _prompt_tokens(server.message(max_tokens=1, **fields)["usage"])
        expect(counted == reported, f"{counted} counted, {reported} reported")


def counts_a_whole_body(server: Server) -> None:
    """Check that a count takes what only a message needs."""
    body = {"max_tokens": 5, "stream": True, "stop_sequences": ["x"], "metadata": {"user_id": "u"}}
    response = server.post("/v1/messages/count_tokens", **body)
    expect(answered(response)["input_tokens"] == server.count(), "another number")


CHECKS = (
    Check("Every key is in every message, null or not", has_every_key),
    Check("Ids begin with `msg_` and `toolu_`", has_its_ids),
    Check("A cut answer: `max_tokens`", ends_at_max_tokens),
    Check("A matched stop sequence is told, streamed or not", tells_stop_sequences),
    Check("`output_config.format` is enforced", matches_a_schema),
    forced("`tool_choice` `tool` is enforced"),
    forced("`tool_choice` `tool` is enforced for a `strict` tool", tools=[_STRICT]),
    Check("`tool_choice` `any`, one call only", calls_once),
    forced("`tool_choice` `required`, as a string", tool_choice="required"),
    forced(
        "`tool_choice` as OpenAI's forced function",
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
    ),
    forced("Tools in OpenAI's shape", tools=[FUNCTION]),
    Check("`tool_choice` `none`", calls_nothing),
    Check("Tools that a server would run are skipped", skips_server_tools),
    Check("Tools are told to a model whose chat template has none", tells_of_tools),
    Check(
        "A schema's keyword that cannot be enforced is named with 400",
        names_an_unenforceable_keyword,
    ),
    Check("A call's arguments stream piece by piece", streams_arguments),
    Check("Events have Anthropic's names and order", streams_in_order),
    Check("`message_start` has a full message", starts_with_a_message),
    Check("A stream adds up to the whole answer", streams_the_same),
    Check("What the cache had is told, and never counted twice", tells_what_was_cached),
    Check("What was written to the cache before a mark is told", tells_what_was_written),
    Check("Without a mark nothing is told as written", writes_nothing_unasked),
    Check("`count_tokens` is what a call then reports", counts_as_it_reports),
    Check("`count_tokens` takes the whole body of a message", counts_a_whole_body),
)
