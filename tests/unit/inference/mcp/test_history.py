"""Earlier calls of servers' tools, as the model is told of them again."""

from __future__ import annotations

from msgspec.structs import replace

from inference.mcp.history import has_server_calls, replay, unanswered
from inference.request import (
    CacheMark,
    Message,
    Part,
    Role,
    ServerToolCallPart,
    ServerToolResultPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from tests.contracts.requests import make_request, say


def _call(call_id: str = "1") -> ServerToolCallPart:
    return ServerToolCallPart(id=call_id, server="clock", name="now", arguments="{}")


def _result(call_id: str = "1", *, is_error: bool = False) -> ServerToolResultPart:
    return ServerToolResultPart(call_id=call_id, text=f"noon {call_id}", is_error=is_error)


def _assistant(*parts: Part) -> Message:
    return Message(role=Role.ASSISTANT, parts=parts)


def _name(server: str, name: str) -> str:
    return f"{server}__{name}"


def _shape(messages: tuple[Message, ...]) -> list[tuple[str, list[str]]]:
    return [(m.role.value, [type(part).__name__ for part in m.parts]) for m in messages]


def test_a_call_and_its_result_become_turns_of_their_own() -> None:
    told = _assistant(TextPart("Let me see."), _call(), _result(is_error=True), TextPart("Noon."))
    messages = replay(make_request("When?", told, "Thanks."), _name).messages

    assert _shape(messages) == [
        ("user", ["TextPart"]),
        ("assistant", ["TextPart", "ToolCallPart"]),
        ("user", ["ToolResultPart"]),
        ("assistant", ["TextPart"]),
        ("user", ["TextPart"]),
    ]
    assert messages[1].parts[1] == ToolCallPart(id="1", name="clock__now", arguments="{}")
    assert messages[2].parts[0] == ToolResultPart(
        call_id="1", parts=(TextPart("noon 1"),), is_error=True
    )


def test_results_of_the_server_and_of_the_caller_are_one_turn() -> None:
    told = _assistant(ToolCallPart(id="c", name="mine", arguments="{}"), _call(), _result())
    answered = Message(
        role=Role.USER, parts=(ToolResultPart(call_id="c", parts=()), TextPart("Go on."))
    )
    messages = replay(make_request("When?", told, answered), _name).messages

    assert _shape(messages)[1:] == [
        ("assistant", ["ToolCallPart", "ToolCallPart"]),
        ("user", ["ToolResultPart", "ToolResultPart", "TextPart"]),
    ]


def test_a_conversation_that_was_paused_ends_with_the_results() -> None:
    messages = replay(make_request("When?", _assistant(_call(), _result())), _name).messages
    assert _shape(messages)[-1] == ("user", ["ToolResultPart"])


def test_the_cache_mark_stays_behind_its_part() -> None:
    told = _assistant(_call(), _result(), TextPart("Noon."))
    request = replace(
        make_request("When?", told, say(Role.USER, "And", "now?")),
        cache_mark=CacheMark(message=2, part=1),
    )
    assert replay(request, _name).cache_mark == CacheMark(message=4, part=1)


def test_a_mark_on_the_tools_stays_where_it_is() -> None:
    mark = CacheMark(message=-1, part=0)
    request = replace(make_request("When?", _assistant(_call(), _result())), cache_mark=mark)
    assert replay(request, _name).cache_mark == mark


def test_a_conversation_without_such_calls_is_left_as_it_is() -> None:
    request = make_request("Hello.", say(Role.ASSISTANT, "Hi."), "Bye.")
    assert not has_server_calls(request.messages)
    assert replay(request, _name) is request


def test_calls_that_were_left_to_the_server_are_found_in_the_last_turn_only() -> None:
    earlier = make_request("When?", _assistant(_call("1")), "Well?")
    assert unanswered(earlier.messages) == ()
    last = make_request("When?", _assistant(_call("1"), _result("1"), _call("2")))
    assert unanswered(last.messages) == (_call("2"),)
