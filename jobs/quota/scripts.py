"""The scripts, and how what is asked and answered is written for them."""

from __future__ import annotations

from datetime import date, timedelta
from importlib import resources

import msgspec

from jobs.amounts import MAX_MICROS
from jobs.ledger import AccountState
from jobs.quota.claims import Decision

# A Lua expression for seconds and microseconds of Unix time; tests have a clock of their own.
REDIS_CLOCK = "redis.call('TIME')"
_EPOCH = date(1970, 1, 1)
_DAY_MS = 86_400_000

_decision = msgspec.msgpack.Decoder(Decision)


def read_script(name: str, clock: str) -> str:
    """Return the source of a script, with what all of them share before it."""
    folder = resources.files(__package__) / "lua"
    parts = [(folder / f"{part}.lua").read_text("utf-8") for part in ("team", name)]
    return "\n".join([f"local time = {clock}", *parts])


def decode_decision(data: bytes) -> Decision:
    """Decode what `admit` answers."""
    return _decision.decode(data)


def encode_state(state: AccountState | None) -> bytes:
    """Encode an account's state with the ends of its day and month: scripts have no calendar."""
    if state is None:
        return msgspec.msgpack.encode(None)
    day = date.fromisoformat(state.day)
    month = date.fromisoformat(f"{state.month}-01")
    return msgspec.msgpack.encode(
        {
            "version": state.version,
            "balance": _exact(state.balance_micros),
            "day_end": _midnight_ms(day + timedelta(days=1)),
            "day_spent": _exact(state.day_spent_micros),
            "month_end": _midnight_ms((month + timedelta(days=31)).replace(day=1)),
            "month_spent": _exact(state.month_spent_micros),
        }
    )


def _midnight_ms(day: date) -> int:
    return (day - _EPOCH).days * _DAY_MS


def _exact(micros: int) -> int:
    return max(-MAX_MICROS, min(MAX_MICROS, micros))
