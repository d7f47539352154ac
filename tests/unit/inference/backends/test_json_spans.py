"""Members are edited in their places, and nothing else of the text changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.backends.json_spans import (
    MAX_MEMBERS,
    Change,
    Span,
    changed,
    elements,
    member,
    members,
    with_existing,
    with_members,
)

SPACE = st.text(" \t\r\n", max_size=3)
# Every way to write a string: raw, short escapes, escaped by number, surrogate pairs, lone halves.
PIECE = st.one_of(
    st.characters(exclude_characters='"\\', exclude_categories=["Cc", "Cs"]),
    st.sampled_from(
        [*(rf"\{sign}" for sign in '"\\/bfnrt'), r"\u0022", r"\u005C", r"\ud83d\ude00", r"\uD800"]
    ),
)
STRING = st.lists(PIECE, max_size=6).map(lambda pieces: f'"{"".join(pieces)}"')
NUMBER = st.one_of(
    st.integers().map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,5})?", fullmatch=True),
)
SCALAR = st.one_of(STRING, NUMBER, st.sampled_from(["true", "false", "null"]))
KEY = st.one_of(
    STRING,
    st.sampled_from(['"model"', '"system"', '"mod\\u0065l"', '"Model"', '"a"']),
)


class Text(NamedTuple):
    """An object as it is written: its members' texts, in the order they stand."""

    pairs: tuple[tuple[str, str], ...]
    spaces: tuple[str, ...]
    mark: bool = False

    def written(self, pairs: Sequence[tuple[str, str]] | None = None) -> bytes:
        """Return the text, with other members in the places of these."""
        before, behind, *inner = self.spaces
        parts = [
            f"{inner[0]}{key}{inner[1]}:{inner[2]}{value}{inner[3]}"
            for key, value in (self.pairs if pairs is None else pairs)
        ]
        text = f"{before}{{{','.join(parts) or inner[0]}}}{behind}"
        return ("\ufeff" * self.mark + text).encode()


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda items, space: f"[{space}{f'{space},'.join(items)}{space}]",
        st.lists(values, max_size=3),
        SPACE,
    )


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return texts(values, marks=st.just(False)).map(lambda text: text.written().decode().strip())


def texts(
    values: st.SearchStrategy[str], marks: st.SearchStrategy[bool]
) -> st.SearchStrategy[Text]:
    pairs = st.lists(st.tuples(KEY, values), max_size=5).map(tuple)
    return st.builds(Text, pairs, st.tuples(*[SPACE] * 6), marks)


VALUE = st.recursive(SCALAR, lambda inner: arrays(inner) | objects(inner), max_leaves=8)
TEXT = texts(VALUE, st.booleans())


def keys_of(text: Text) -> list[str]:
    return [json.loads(key) for key, _ in text.pairs]


@given(TEXT)
def test_it_finds_every_member_where_it_stands(text: Text) -> None:
    written = text.written()
    found = [
        (each.key, written[each.value.start : each.value.end].decode()) for each in members(written)
    ]
    assert found == [
        (key, value) for key, (_, value) in zip(keys_of(text), text.pairs, strict=True)
    ]


@given(TEXT, VALUE)
def test_an_edited_value_is_all_that_changes(text: Text, value: str) -> None:
    edited = [(key, value if json.loads(key) == "model" else before) for key, before in text.pairs]
    assert with_existing(text.written(), {"model": value.encode()}) == text.written(edited)


@given(TEXT, VALUE)
def test_what_is_not_there_is_added_behind_all_that_is(text: Text, value: str) -> None:
    written, new = text.written(), {"never-there": value.encode()}
    edited = with_members(written, new)
    added = b'"never-there":' + value.encode()
    assert with_existing(written, new) == written
    where = edited.index(added)
    comma = 1 if text.pairs else 0
    assert edited[: where - comma] + edited[where + len(added) :] == written
    *before, last = members(edited)
    assert [each.key for each in before] == keys_of(text)
    assert edited[last.value.start : last.value.end] == value.encode()


@given(TEXT)
def test_the_value_of_a_key_that_comes_twice_is_the_last_one(text: Text) -> None:
    written = text.written()
    last = {key: value for key, (_, value) in zip(keys_of(text), text.pairs, strict=True)}
    for key, value in last.items():
        where = member(written, key)
        assert where is not None
        assert written[where.start : where.end].decode() == value
    assert member(written, "never-there") is None


@given(st.lists(VALUE, max_size=4), SPACE)
def test_it_finds_every_element_of_an_array(values: list[str], space: str) -> None:
    written = f"{space}[{space}{f'{space},{space}'.join(values)}{space}]{space}".encode()
    found = [written[start:end].decode() for start, end in elements(written)]
    assert found == values


def test_a_member_inside_another_is_none_of_the_objects() -> None:
    text = b'{"a":{"model":"x"},"b":[{"model":"y"}],"c":"\\"model\\":1"}'
    assert with_existing(text, {"model": b'"z"'}) == text


def test_both_values_of_a_key_that_comes_twice_are_changed() -> None:
    text = b'{"model": 1, "stream": true, "mod\\u0065l" :2}'
    assert with_members(text, {"model": b'"z"'}) == (
        b'{"model": "z", "stream": true, "mod\\u0065l" :"z"}'
    )


def test_several_places_are_changed_at_once() -> None:
    changes = [Change(Span(0, 1), b"xx"), Change(Span(2, 2), b"-"), Change(Span(3, 4), b"")]
    assert changed(b"abcde", changes) == b"xxb-ce"


def test_a_string_of_megabytes_is_no_burden() -> None:
    text = b'{"a":"' + b"\\n" * 2_000_000 + b'","model":"x"}'
    assert with_existing(text, {"model": b"1"}) == text.replace(b'"x"', b"1")


@pytest.mark.parametrize(
    "text",
    [b"", b"1", b"[1]", b'"{}"', b"{", b'{"a"}', b'{"a":}', b'{"a":1', b'{"a":[1}', b"{1:2}"],
)
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="byte"):
        list(members(text))


def test_what_is_no_array_is_refused() -> None:
    for text in (b"{}", b"[1", b"[1 2]"):
        with pytest.raises(ValueError, match="byte"):
            list(elements(text))


def test_an_edit_says_nothing_else_to_a_decoder() -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "ü\u2028"}], "model": "a"}
    for ascii_only in (True, False):
        text = json.dumps(body, ensure_ascii=ascii_only, indent=2).encode()
        assert json.loads(with_members(text, {"model": b'"b"', "x": b"1"})) == body | {
            "model": "b",
            "x": 1,
        }


def test_a_key_that_comes_twice_is_refused_where_it_must_not() -> None:
    for text in (
        b'{"a":1,"a":2}',
        b'{"a":[1],"b":2,"\\u0061":[1]}',
        b'{"a":[[],[]],"a":1}',
        b'{"a":"x","a":"y"}',
    ):
        with pytest.raises(ValueError, match="`a` comes twice"):
            list(members(text, once=True))
        assert [each.key for each in members(text)].count("a") == 2
    text = b'{"a":{"b":1,"b":2},"b":"x","c":[3]}'
    assert list(members(text, once=True)) == list(members(text))


def test_members_without_end_are_refused() -> None:
    def text(count: int) -> bytes:
        return b"{%b}" % b",".join(b'"%d":[%d]' % (number, number) for number in range(count))

    assert len(list(members(text(MAX_MEMBERS)))) == MAX_MEMBERS
    for without_end in (text(MAX_MEMBERS + 1), b"{%b}" % b",".join([b'"a":1'] * 2000)):
        with pytest.raises(ValueError, match="more than 1,000 members"):
            list(members(without_end))
