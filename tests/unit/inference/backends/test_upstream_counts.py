"""Which numbers of an upstream's are counts."""

from __future__ import annotations

import msgspec
import pytest

from inference.backends.upstream_counts import Count, Counts
from inference.events import MAX_TOKENS


class Said(Counts):
    """Two counts, and something else."""

    one_tokens: Count = None
    other_tokens: Count = None
    type: str = ""


def read(text: str) -> Said:
    written = f'{{"one_tokens":{text},"other_tokens":3,"type":"message"}}'
    return msgspec.json.decode(written, type=Said)


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("7", 7), ("7.0", 7), ('"7"', 7), (str(MAX_TOKENS), MAX_TOKENS), ("null", None)],
)
def test_a_count_is_read(text: str, count: int | None) -> None:
    assert read(text) == Said(count, 3, "message")


@pytest.mark.parametrize(
    "text",
    [
        *("-1", "0.5", "1e300", str(MAX_TOKENS + 1), str(2**62), "9" * 25, "true", "false"),
        *('"-1"', '"many"', '"\\u0663"', f'"{"9" * 5000}"', "[1]", '{"one_tokens":1}'),
    ],
)
def test_what_cannot_be_a_count_is_none_and_spoils_no_other(text: str) -> None:
    assert read(text) == Said(None, 3, "message")
