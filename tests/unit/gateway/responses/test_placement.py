"""Where a response is to be made, by what its request says."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from gateway.responses.placement import Placement, place
from inference.errors import TandemError

HOUR_S = 3600
STREAM = uuid.uuid4()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"background": False},
        {"background": None, "metadata": None, "background_options": None},
        {"metadata": {"custom_id": "a"}},
        # Metadata is the caller's own: not everything of that name is a stream's id.
        {"metadata": {"stream_id": "kitchen"}},
        {"store": False},
    ],
)
def test_it_is_made_at_once_unless_it_is_said(body: dict[str, Any]) -> None:
    assert place(body) is None


@pytest.mark.parametrize(
    ("more", "window_s"),
    [
        ({}, 24 * HOUR_S),
        ({"metadata": {"completion_window": "24h"}}, 24 * HOUR_S),
        ({"background_options": {"completion_window": "soonest"}}, 24 * HOUR_S),
        ({"background_options": {"completion_window": "2h"}}, 2 * HOUR_S),
        (
            {
                "background_options": {"completion_window": "8h"},
                "metadata": {"completion_window": "24h"},
            },
            8 * HOUR_S,
        ),
    ],
)
def test_both_dialects_set_the_window(more: dict[str, Any], window_s: int) -> None:
    assert place({"background": True, **more}) == Placement(window_s, None, "")


def test_a_streams_response_is_made_in_the_background() -> None:
    body = {"metadata": {"stream_id": str(STREAM), "custom_id": "row-1"}}
    assert place(body) == Placement(24 * HOUR_S, STREAM, "row-1")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"background": True, "store": False}, "store"),
        (
            {"background": True, "metadata": {"completion_window": "1m"}},
            "metadata.completion_window",
        ),
        (
            {"background": True, "background_options": {"completion_window": 5}},
            "background_options.completion_window",
        ),
        ({"metadata": {"completion_window": "24h"}}, "metadata.completion_window"),
        ({"background": True, "metadata": {"custom_id": "x" * 513}}, "metadata.custom_id"),
        ({"background": True, "metadata": {"custom_id": "a\0"}}, "metadata.custom_id"),
    ],
)
def test_it_names_what_is_wrong(body: dict[str, Any], param: str) -> None:
    with pytest.raises(TandemError) as raised:
        place(body)
    assert raised.value.param == param
    assert raised.value.message.startswith(f"{param}: ")
