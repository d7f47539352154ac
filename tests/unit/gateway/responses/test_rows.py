"""Stored responses as they are read."""

from __future__ import annotations

import pytest

from gateway.responses import rows
from gateway.responses.paging import Page
from inference.errors import ErrorCode, TandemError
from inference.events import FinishReason
from inference.request import ToolCallPart
from jobs import responses
from tests.unit.gateway.responses.conftest import BLUE, RED, MakeResponse, an_answer, end

CALL = ToolCallPart(id="0198c5a0-0000-7000-8000-000000000001", name="look", arguments="{}")


@pytest.mark.parametrize("prefix", ["", "resp_"])
def test_an_id_is_known_with_and_without_its_prefix(
    make_response: MakeResponse, prefix: str
) -> None:
    row = make_response()
    assert rows.find(BLUE, f"{prefix}{row.pk}") == row


def test_anothers_id_fails_in_the_words_of_one_that_nobody_has(
    make_response: MakeResponse,
) -> None:
    row = make_response(RED)
    nobodys = str(row.pk)[:-4] + "0000"
    said = []
    for text in (str(row.pk), nobodys, "resp_nonsense"):
        with pytest.raises(TandemError) as raised:
            rows.find(BLUE, text)
        assert raised.value.code is ErrorCode.NOT_FOUND
        said.append(raised.value.message.replace(text, "X"))
    assert set(said) == {"Response with id 'X' not found."}


def test_bug_24_a_conversation_keeps_calls_and_what_they_came_to(
    make_response: MakeResponse,
) -> None:
    first = end(make_response(input="look"), responses.completed(an_answer(CALL)))
    (asked, call) = rows.conversation(BLUE, str(first.pk))
    assert (asked["role"], call["type"], call["name"]) == ("user", "function_call", "look")
    came_to = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    second = end(make_response(input=[came_to], items=[asked, call]))
    told = rows.conversation(BLUE, str(second.pk))
    assert [item["type"] for item in told] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert told[:2] == [asked, call]


def test_one_that_has_not_ended_cannot_be_continued(make_response: MakeResponse) -> None:
    row = make_response(background=True)
    with pytest.raises(TandemError, match="has not ended yet") as raised:
        rows.conversation(BLUE, str(row.pk))
    assert raised.value.param == "previous_response_id"


def test_one_that_failed_is_continued_from_what_was_asked(make_response: MakeResponse) -> None:
    row = end(make_response(input="hi"), responses.failed(ErrorCode.INTERNAL, "no"))
    (asked,) = rows.conversation(BLUE, str(row.pk))
    assert asked["content"] == [{"type": "input_text", "text": "hi"}]


def test_items_are_found_by_their_ids_among_the_teams_own(make_response: MakeResponse) -> None:
    mine, theirs = end(make_response()), end(make_response(RED))
    (asked, said) = rows.conversation(BLUE, str(mine.pk))
    (stolen, _) = rows.conversation(RED, str(theirs.pk))
    wanted = [said["id"], asked["id"], stolen["id"], "msg_1"]
    assert list(rows.referenced(BLUE, wanted)) == [said["id"], asked["id"]]


def test_it_shows_a_response_that_was_cut_short(make_response: MakeResponse) -> None:
    row = end(make_response(), responses.completed(an_answer(reason=FinishReason.LENGTH)))
    shown = rows.shown(row)
    assert shown["status"] == "incomplete"
    assert shown["incomplete_details"] == {"reason": "max_output_tokens"}
    assert shown["id"] == f"resp_{row.pk}"
    assert shown["usage"]["total_tokens"] == 5


def test_it_shows_what_a_response_failed_of(make_response: MakeResponse) -> None:
    row = end(make_response(), responses.failed(ErrorCode.PROMPT_TOO_LONG, "too long"))
    shown = rows.shown(row)
    assert shown["status"] == "failed"
    assert shown["error"]["message"] == "too long"


def test_a_page_has_one_more_than_is_shown_where_there_are_more(
    make_response: MakeResponse,
) -> None:
    made = [make_response() for _ in range(3)]
    make_response(RED)
    assert rows.listed(BLUE, Page(5), None) == made[::-1]
    assert rows.listed(BLUE, Page(1), None) == [made[2], made[1]]
    assert rows.listed(BLUE, Page(5, newest_first=False), None) == made
    after = Page(5, after=f"resp_{made[1].pk}")
    assert rows.listed(BLUE, after, None) == [made[0]]
    assert rows.listed(BLUE, after._replace(newest_first=False), None) == [made[2]]


def test_a_list_reads_no_bodies(make_response: MakeResponse) -> None:
    make_response()
    (row,) = rows.listed(BLUE, Page(5), None)
    rows.shown_in_list(row)
    assert {"body", "items", "answer", "events"} <= row.get_deferred_fields()
