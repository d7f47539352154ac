"""The filter that ends an answer at a stop text."""

from __future__ import annotations

import pytest

from inference.backends.stops import StopFilter


def _shown(stops: tuple[str, ...], *pieces: str) -> tuple[list[str], str | None]:
    stop_filter = StopFilter(stops)
    shown = []
    for piece in pieces:
        shown.append(stop_filter.push(piece))
        if stop_filter.matched is not None:
            break
    return [*shown, stop_filter.flush()], stop_filter.matched


def test_it_lets_everything_through_without_stops() -> None:
    assert _shown((), "one ", "two") == (["one ", "two", ""], None)


def test_it_cuts_before_the_stop() -> None:
    assert _shown(("END",), "text END more") == (["text ", ""], "END")


def test_it_holds_back_what_may_become_a_stop() -> None:
    assert _shown(("END",), "text E", "N", "D") == (["text ", "", "", ""], "END")


def test_it_lets_go_of_what_did_not_become_a_stop() -> None:
    assert _shown(("END",), "text E", "N", "TER") == (["text ", "", "ENTER", ""], None)


def test_it_shows_what_it_held_back_when_the_answer_is_over() -> None:
    assert _shown(("END",), "text EN") == (["text ", "EN"], None)


@pytest.mark.parametrize("stops", [("b", "abc"), ("abc", "b")])
def test_it_takes_the_stop_that_was_whole_first(stops: tuple[str, ...]) -> None:
    assert _shown(stops, "xabcx") == (["xa", ""], "b")
