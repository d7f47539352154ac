"""Amounts of money as people read and type them."""

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


def amount(micros: int) -> str:
    """Write an amount in units of the currency, exactly, with at least two decimals."""
    units, rest = divmod(abs(micros), MICROS)
    decimals = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if micros < 0 else ''}{units}.{decimals}"
