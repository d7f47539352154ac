"""What is recorded of an attempt."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from inference.engine.attempt import Attempt
from inference.events import Finished, FinishReason, Usage
from inference.transport.frames import QueueEntry
from tests.contracts.requests import make_request
from tests.engine_host import OWNER

USAGE = Usage(prompt_tokens=9, cached_tokens=4, cache_written_tokens=2, output_tokens=3)


@pytest.mark.parametrize(
    ("choice", "shares_prompt", "counts"), [(0, True, True), (1, True, False), (1, False, True)]
)
def test_of_answers_that_share_a_prompt_only_the_first_counts_it(
    choice: int, shares_prompt: bool, counts: bool
) -> None:
    request = replace(make_request(), owner=OWNER, choice=choice, shares_prompt=shares_prompt)
    attempt = Attempt(QueueEntry(gateway_id="g1", attempt=0, request=request), 0)
    attempt.confirmed()
    attempt.next_seq(Finished(reason=FinishReason.END, usage=USAGE))
    record = attempt.record("e1")
    assert record is not None
    assert record.usage == (
        USAGE if counts else Usage(prompt_tokens=0, cached_tokens=0, output_tokens=3)
    )


def test_what_a_broken_off_answer_used_is_all_that_was_counted() -> None:
    request = replace(make_request(), owner=OWNER)
    attempt = Attempt(QueueEntry(gateway_id="g1", attempt=0, request=request), 0)
    attempt.confirmed()
    for name in USAGE.__struct_fields__[:-1]:
        setattr(attempt.tally, name, getattr(USAGE, name))
    record = attempt.record("e1")
    assert record is not None
    assert record.usage == USAGE
