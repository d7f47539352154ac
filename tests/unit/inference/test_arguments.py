"""One valid JSON object, whatever a model writes and however it is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inference.arguments import MALFORMED, MAX_DEPTH, ArgumentsStream


def stream(*fragments: str) -> list[str]:
    """Return what each fragment brought, and at last what the end did."""
    arguments = ArgumentsStream()
    return [*map(arguments.feed, fragments), arguments.finish()]


def whole(*fragments: str) -> str:
    return "".join(stream(*fragments))


def parsed(raw: str) -> Any:
    return json.loads(whole(raw))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)
SPELLED = st.builds(
    lambda value, indent, ascii_only: json.dumps(value, indent=indent, ensure_ascii=ascii_only),
    OBJECTS,
    st.sampled_from([None, 1]),
    st.booleans(),
)
SCRAPS = [
    *["{", "}", "[", "]", ",", ":", '"', "'", "\\", "\\u", "d83d", "a", "1", "-", ".", " ", "\n"],
    *["true", "nul", '"a"', '{"a":', "é", "```", "//"],
]
JSON_LIKE = st.lists(st.sampled_from(SCRAPS), max_size=24).map("".join)
ANYTHING = JSON_LIKE | st.text(max_size=30)


@st.composite
def broken(draw: st.DrawFn) -> str:
    """Return JSON with a piece cut out and another put in."""
    text = draw(SPELLED)
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 3)))
    return text[:start] + draw(st.sampled_from(["", '"', ",", "}", "x", "\\", "\n"])) + text[end:]


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


@given(raw=SPELLED, cuts=st.lists(st.integers(0, 999), max_size=6))
def test_valid_arguments_come_out_as_they_went_in(raw: str, cuts: list[int]) -> None:
    assert whole(*pieces(raw, cuts)) == raw


@settings(max_examples=500)
@given(raw=ANYTHING | broken(), cuts=st.lists(st.integers(0, 999), max_size=6))
@example(raw='{"a": "\\ud83d\\n"}', cuts=[8, 10, 12])
@example(raw='{"a": 1}t', cuts=[])
def test_any_text_and_any_cut_of_it_is_one_and_the_same_object(raw: str, cuts: list[int]) -> None:
    once = whole(raw)
    assert isinstance(json.loads(once), dict)
    assert whole(*pieces(raw, cuts)) == once
    assert whole(*raw) == once


@pytest.mark.parametrize("raw", ["", " ", "\n\t"])
def test_no_arguments_are_an_empty_object(raw: str) -> None:
    assert whole(raw) == "{}"


def test_the_text_of_a_string_flows_and_the_rest_waits_for_a_value() -> None:
    fragments = ['{"pa', 'th": ', '"a/', "b", '.py"', ", ", '"n": ', "12", "}"]
    assert stream(*fragments) == ["", "", '{"path": "a/', "b", ".py", '"', "", "", ', "n": 12', "}"]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ('{"a": 1,}', {"a": 1}),
        ("{'a': True, 'b': None}", {"a": True, "b": None}),
        ('{a: 1, b: "two"}', {"a": 1, "b": "two"}),
        ('{"a": 1 "b": 2}', {"a": 1, "b": 2}),
        ('{"a": "he said "hi" there", "b": 2}', {"a": 'he said "hi" there', "b": 2}),
        ('{"a": "one\ntwo\t"}', {"a": "one\ntwo\t"}),
        ('{"a": {"b": 1}}, "c": 3}', {"a": {"b": 1}, "c": 3}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('{"a": 1} That is all.', {"a": 1}),
        ("{} That is all.", {}),
        ('{"path": "C:\\Users\\d"}', {"path": "C:\\Users\\d"}),
        ('{"a": "\\ud83d x", "b": "\\ud83d\\ude00"}', {"a": "\ufffd x", "b": "😀"}),
    ],
)
def test_bug_10_malformed_arguments_are_repaired(raw: str, value: dict[str, Any]) -> None:
    assert parsed(raw) == value


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("{", {}),
        ('{"a', {}),
        ('{"a": tru', {}),
        ('{"a": 12', {"a": 12}),
        ('{"a": 1, "b', {"a": 1}),
        ('{"a": 1, "b": ', {"a": 1}),
        ('{"a": [1, {"b": "x ', {"a": [1, {"b": "x "}]}),
        ('{"a": "x\\u00', {"a": "x"}),
        ('{"a": "x"', {"a": "x"}),
    ],
)
def test_arguments_that_are_cut_short_keep_what_was_whole(raw: str, value: dict[str, Any]) -> None:
    assert parsed(raw) == value


@pytest.mark.parametrize("raw", ["I cannot call it.", "null", "[1]", '"a"', "{" * 300, "}"])
def test_bug_10_hopeless_arguments_are_handed_over_as_they_are(raw: str) -> None:
    assert parsed(raw) == {MALFORMED: raw}


@pytest.mark.parametrize(
    ("raw", "sent"),
    [
        ('{"a": 1}{"b": 2}', {"a": 1}),
        ('{"a": [{"b": "x"}, ' + "[" * MAX_DEPTH, {"a": [{"b": "x"}, None]}),
    ],
)
def test_what_was_passed_on_stays_beside_arguments_that_cannot_be_repaired(
    raw: str, sent: dict[str, Any]
) -> None:
    value = parsed(raw)
    assert value.pop(MALFORMED) == raw
    assert value.keys() == sent.keys()


def test_arguments_too_long_to_be_repaired_are_handed_over_as_they_are() -> None:
    raw = "{'a': '" + "x" * 20_000 + "'}"
    assert parsed(raw) == {MALFORMED: raw}


def test_arguments_of_any_length_pass_when_they_are_valid() -> None:
    raw = json.dumps({"content": "x = 1\n" * 20_000, "list": list(range(1000))})
    assert whole(*[raw[start : start + 7] for start in range(0, len(raw), 7)]) == raw


@pytest.mark.parametrize("after", ["", "}", ', "b": 1}'])
def test_a_model_that_runs_on_in_digits_breaks_nobody(after: str) -> None:
    assert isinstance(parsed('{"a": ' + "1" * 5000 + after), dict)
