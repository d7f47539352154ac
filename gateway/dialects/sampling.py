"""The fields on how tokens are chosen that mean the same in every dialect."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

from gateway.dialects.validation import WholeNumber

MAX_INT = 2**31 - 1
"""Largest count that engines take."""

MAX_STOP_SEQUENCES = 256
"""The engine looks for every one of them after every token."""

# The rule in a published schema of a string whose validator has words of its own for it.
NON_EMPTY: dict[str, JsonValue] = {"minLength": 1}


def _non_empty_stop(value: str) -> str:
    if not value:
        raise ValueError("each stop sequence must be non-empty")
    return value


StopSequence = Annotated[str, AfterValidator(_non_empty_stop), Field(json_schema_extra=NON_EMPTY)]
StopSequences = Annotated[list[StopSequence], Field(max_length=MAX_STOP_SEQUENCES, fail_fast=True)]
TopK = Annotated[int, Field(ge=-1, le=MAX_INT), WholeNumber]


def top_k(value: int | None) -> int | None:
    """Say "no limit" as a limit beyond any vocabulary: None would be the model's own default."""
    return MAX_INT if value is not None and value < 1 else value
