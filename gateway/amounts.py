"""Amounts as operators type them."""

from __future__ import annotations

from argparse import ArgumentTypeError
from decimal import Decimal

MICROS = 1_000_000
"""Micro-units in a unit of the currency."""


def amount_micros(text: str) -> int:
    """Return whole micro-units, for a command's arguments; whether so many go, the ledger says."""
    try:
        micros = Decimal(text) * MICROS
    except ArithmeticError:
        raise ArgumentTypeError(f"{text!r} is not an amount such as 25.00") from None
    if not micros.is_finite() or micros != micros.to_integral_value():
        raise ArgumentTypeError("an amount has at most six decimal places")
    return int(micros)
