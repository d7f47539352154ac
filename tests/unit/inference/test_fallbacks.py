"""Which models may stand in for which."""

from __future__ import annotations

import pytest

from inference.fallbacks import fallback_fault


@pytest.mark.parametrize(
    ("fallbacks", "fault"),
    [
        ({"a": None}, None),
        ({"a": "b", "b": None}, None),
        # It stands in for two.
        ({"a": "b", "b": None, "c": "b"}, None),
        ({"a": "b"}, None),
        ({"a": "a"}, "a is its own fallback."),
        ({"a": "b", "b": "c", "c": None}, "a falls back to b, which falls back to c itself."),
        ({"a": "b", "b": "a"}, "a falls back to b, which falls back to a itself."),
        (
            {"a": "b", "b": None, "d": "a", "c": "a"},
            "a falls back to b and is the fallback of c, d.",
        ),
    ],
)
def test_a_fallback_has_none_and_is_none(
    fallbacks: dict[str, str | None], fault: str | None
) -> None:
    assert fallback_fault("a", fallbacks) == fault
