"""The bound of every amount of money, whichever part holds it."""

MAX_MICROS = 2**53 - 1
"""Micro-units: nine billion units. Lua's numbers are doubles, whole ones exact up to here."""
