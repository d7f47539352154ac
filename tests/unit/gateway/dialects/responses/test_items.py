"""Ids and items."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.responses.items import (
    Place,
    created_at_s,
    input_items,
    item_id,
    locate,
    output_items,
    public_id,
    read_id,
)
from inference.fold import Answer
from inference.request import TextPart, ThinkingPart, ToolCallPart
from tests.openai_types import check_input_item, check_output_item
from tests.unit.gateway.dialects.responses.runs import END, HEX, ID

CALL = ToolCallPart(id=ID, name="weather", arguments="{}")


@pytest.mark.parametrize("text", [ID, f"resp_{ID}", HEX, f"resp_{HEX}", f"resp_{ID.upper()}"])
def test_a_response_is_known_by_its_id_however_it_is_written(text: str) -> None:
    assert read_id(text) == ID


@pytest.mark.parametrize("text", ["", "resp_", "resp_1", f"msg_{ID}", f"{ID}0", HEX[:-1], "é" * 32])
def test_what_is_no_id_is_none(text: str) -> None:
    assert read_id(text) is None


def test_the_public_id_is_read_back() -> None:
    assert read_id(public_id(ID)) == ID


def test_a_response_knows_when_it_was_asked_for() -> None:
    assert created_at_s(ID) == int(HEX[:12], 16) / 1000


def test_an_item_is_found_by_its_id() -> None:
    assert locate(item_id("message", ID, 3)) == Place(ID, in_output=True, number=3)
    assert locate(item_id("function_call", ID, 0, side="in")) == Place(
        ID, in_output=False, number=0
    )
    assert locate("msg_1") is None


def test_an_answers_items_are_the_sdks() -> None:
    answer = Answer(parts=(ThinkingPart("Hm."), TextPart("Hi."), CALL), finished=END)

    items = output_items(ID, answer, {}, status="incomplete")

    assert [check_output_item(item).status for item in items] == [
        "completed",
        "completed",
        "incomplete",
    ]
    assert len({item["id"] for item in items}) == 3


@pytest.mark.parametrize(
    "given",
    [
        "hi",
        [{"role": "user", "content": "hi"}],
        [{"role": "assistant", "content": "hi", "type": "message"}],
        [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        [
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "sunny"},
        ],
    ],
)
def test_inputs_are_listed_as_items_with_ids(given: Any) -> None:
    items = input_items(ID, given)

    for number, item in enumerate(items):
        assert locate(item["id"]) == Place(ID, in_output=False, number=number)
        assert item["status"] == "completed"
        check_input_item(item)


def test_an_item_keeps_the_id_that_it_came_with() -> None:
    (item,) = input_items(ID, [{"id": "msg_7", "role": "user", "content": "hi"}])

    assert item["id"] == "msg_7"


def test_no_input_has_no_items() -> None:
    assert input_items(ID, None) == input_items(ID, "") == []
