"""Names that two models claim."""

from __future__ import annotations

from inference.names import claimed_twice


def test_models_with_names_of_their_own_do_not_clash() -> None:
    assert claimed_twice([("a", ["x", "y"]), ("b", ["z"])]) == {}


def test_an_alias_of_two_models_is_found_with_both() -> None:
    assert claimed_twice([("b", ["x"]), ("a", ["x", "y"])]) == {"x": ["a", "b"]}


def test_an_alias_that_is_another_model_s_id_is_found() -> None:
    assert claimed_twice([("a", ["b"]), ("b", [])]) == {"b": ["a", "b"]}


def test_case_does_not_matter() -> None:
    assert claimed_twice([("Fast", []), ("b", ["fAST"])]) == {"fast": ["Fast", "b"]}


def test_a_model_may_repeat_its_own_name() -> None:
    assert claimed_twice([("a", ["A", "x", "X"])]) == {}
