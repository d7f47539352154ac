"""What upstreams say of usage: the counts that can be ones. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from inference.events import MAX_TOKENS

if TYPE_CHECKING:
    Count = int | None
else:
    # Whatever stands there is decoded: one count that is wrong must not spoil the others.
    Count = Any

_MAX_DIGITS = len(str(MAX_TOKENS))


class Counts(msgspec.Struct):
    """Has counts, in the fields whose names end in `_tokens`. One that cannot be is None, as if
    nothing had been said of it: no queue and no ledger takes every number."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name.endswith("_tokens"):
                setattr(self, name, _count(getattr(self, name)))


def _count(value: object) -> int | None:
    """Read a count. Some write them as text, or with a fraction of nothing."""
    match value:
        case bool():
            return None
        case float() if value.is_integer():
            value = int(value)
        case str() if value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS:
            value = int(value)
    return value if isinstance(value, int) and 0 <= value <= MAX_TOKENS else None
