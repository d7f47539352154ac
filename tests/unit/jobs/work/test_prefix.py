"""Which prompts stand together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inference.request import GenerationRequest, ImagePart, Message, Role, TextPart, Tool
from jobs.work.prefix import prefix_of
from tests.contracts.requests import make_request, say

LONG = "A long document. " * 100


def asked(*messages: str | Message, system: str = "", **fields: Any) -> GenerationRequest:
    first = [say(Role.SYSTEM, system)] if system else []
    return msgspec.structs.replace(make_request(*first, *messages), **fields)


def halves(request: GenerationRequest) -> tuple[int, int]:
    high, low = divmod(prefix_of(request), 2**32)
    return high, low


def test_rows_with_one_system_prompt_share_the_high_half_and_are_told_apart_by_the_low_one() -> (
    None
):
    one, other = halves(asked("one", system="Be brief.")), halves(asked("two", system="Be brief."))
    assert one[0] == other[0]
    assert one[1] != other[1]
    assert halves(asked("one", system="Be long."))[0] != one[0]


def test_rows_that_begin_with_one_long_text_are_alike_whatever_follows() -> None:
    assert prefix_of(asked(LONG + "What?")) == prefix_of(asked(LONG + "And who?"))
    assert prefix_of(asked(LONG, say(Role.ASSISTANT, "Well."), "What?")) == prefix_of(
        asked(LONG, say(Role.ASSISTANT, "No."), "Who?")
    )
    assert prefix_of(asked("Why? " + LONG)) != prefix_of(asked("Who? " + LONG))


def test_who_says_it_matters() -> None:
    assert prefix_of(asked("Be brief.")) != prefix_of(asked(system="Be brief."))


def test_tools_belong_to_the_beginning() -> None:
    tool = Tool(name="look", schema={"type": "object"})
    other = Tool(name="find", schema={"type": "object"})
    assert halves(asked("go", tools=(tool,)))[0] == halves(asked("come", tools=(tool,)))[0]
    assert halves(asked("go", tools=(tool,)))[0] != halves(asked("go", tools=(other,)))[0]


def test_images_are_told_apart() -> None:
    def shown(data: bytes) -> GenerationRequest:
        parts = (ImagePart("image/png", data), TextPart("What?"))
        return asked(Message(role=Role.USER, parts=parts))

    assert prefix_of(shown(b"one")) == prefix_of(shown(b"one"))
    assert prefix_of(shown(b"one")) != prefix_of(shown(b"two"))


@pytest.mark.parametrize("field", ["id", "model", "deadline_s", "cache_salt"])
def test_what_is_no_part_of_the_prompt_does_not_matter(field: str) -> None:
    other = 1.0 if field == "deadline_s" else "other"
    changed = msgspec.structs.replace(asked("go"), **{field: other})
    assert prefix_of(changed) == prefix_of(asked("go"))


def test_it_fits_a_column_and_is_the_same_in_every_process() -> None:
    numbers = [prefix_of(asked(str(n), system=str(n))) for n in range(50)]
    assert all(-(2**63) <= number < 2**63 for number in numbers)
    assert min(numbers) < 0 < max(numbers)
    # As it was when this was written: rows that wait keep their place through an upgrade.
    assert prefix_of(asked("one", system="Be brief.")) == 7574389614871020707
