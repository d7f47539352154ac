"""Units as they are shown and typed."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from gateway.admin.money import UnitsField, units


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (None, "-"),
        (0, "0.000000"),
        (1, "0.000001"),
        (-1_500_000, "-1.500000"),
        (1_234_567_890, "1,234.567890"),
        (2**53, "9,007,199,254.740992"),
    ],
)
def test_micro_units_are_shown_as_units_to_the_last_one(micros: int | None, shown: str) -> None:
    assert units(micros) == shown


@pytest.mark.parametrize(
    ("typed", "micros"),
    [("3", 3_000_000), ("0.000001", 1), ("-2.5", -2_500_000), ("", None), ("1e3", 1_000_000_000)],
)
def test_typed_units_become_whole_micro_units(typed: str, micros: int | None) -> None:
    value = UnitsField(required=False).clean(typed)
    assert value == micros
    assert value is None or type(value) is int


@pytest.mark.parametrize("typed", ["0.0000001", "1234567890.000000", "x", "NaN", "Infinity"])
def test_what_is_no_number_of_micro_units_is_refused(typed: str) -> None:
    with pytest.raises(ValidationError):
        UnitsField().clean(typed)


def test_a_stored_amount_is_shown_in_units_and_what_was_typed_as_it_is() -> None:
    assert UnitsField().prepare_value(1_500_000) == "1.500000"
    assert UnitsField().prepare_value("1,5") == "1,5"


def test_the_same_amount_written_otherwise_is_no_change() -> None:
    assert not UnitsField().has_changed(1_500_000, "1.5")
    assert UnitsField().has_changed(1_500_000, "1.500001")
    assert UnitsField().has_changed(None, "0")
