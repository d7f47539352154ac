"""Lists that are typed as lines."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from gateway.admin.lines import ArgumentsField, LinesField, NamesField


def test_each_line_is_an_entry_without_the_spaces_around_it() -> None:
    assert NamesField(required=False).clean(" a \r\n\r\nb\n") == ["a", "b"]


@pytest.mark.parametrize("field", [NamesField, ArgumentsField])
@pytest.mark.parametrize("typed", ["", " \n ", None])
def test_nothing_is_an_empty_list(field: type[LinesField], typed: str | None) -> None:
    assert field(required=False).clean(typed) == []


def test_every_line_that_is_no_name_is_told() -> None:
    with pytest.raises(ValidationError) as caught:
        NamesField().clean("a b\nc\nd,e")
    assert [message[:7] for message in caught.value.messages] == ["Line 1:", "Line 3:"]


@pytest.mark.parametrize(
    ("typed", "told"), [("a\0", "null character"), ("a\ud800", "no text"), ("a\nA", "on line 1")]
)
def test_a_name_that_cannot_be_kept_is_refused(typed: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        NamesField().clean(typed)


@pytest.mark.parametrize(
    "argument",
    [
        "-y",
        "two words",
        " indented",
        "first\nsecond",
        "\u2028",
        '"quoted"',
        '"',
        "'",
        "\\",
        "[]",
        "é",
    ],
)
def test_any_argument_is_read_as_it_was_written(argument: str) -> None:
    field = ArgumentsField()
    command = ["program", argument, "end"]
    assert field.clean(field.prepare_value(command)) == command


@pytest.mark.parametrize("line", ['"open', '""', '"\\u0000"', '"\\ud800"', '"a" "b"'])
def test_a_quoted_line_that_is_no_argument_is_refused(line: str) -> None:
    with pytest.raises(ValidationError, match="Line 2:"):
        ArgumentsField().clean(f"program\n{line}")


def test_only_other_entries_are_a_change() -> None:
    field = NamesField(required=False)
    assert not field.has_changed(["a", "b"], "a\n\nb\n")
    assert not field.has_changed([], "")
    assert field.has_changed(["a", "b"], "b\na")
    assert field.has_changed(["a"], "a b")
