"""Edits members of a JSON object in its text: every byte outside of their values stays as it is.

To decode a body and encode it anew rounds its numbers, spells its strings in another way and drops
keys that come twice; what an upstream has signed would not be that any more. A text must be valid
JSON in UTF-8: whoever has it checked that before, and here only as much is looked at as it takes to
find where values begin and end.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

# Possessive, so that a string of megabytes takes no memory.
_STRING_PATTERN = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING = re.compile(_STRING_PATTERN, re.DOTALL)
_STRUCTURE = re.compile(_STRING_PATTERN + rb"|[{}\[\]]", re.DOTALL)
_SCALAR = re.compile(rb"[-+.0-9A-Za-z]+")
_SPACE = re.compile(rb"[ \t\r\n]*")
_KEY = re.compile(rb"(" + _STRING_PATTERN + rb")[ \t\r\n]*+:[ \t\r\n]*+", re.DOTALL)
_NEXT = re.compile(rb"[ \t\r\n]*+([,}])[ \t\r\n]*+")
_LONG = (b"{", b"[", b'"')
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

MAX_MEMBERS = 1000
"""Of one object. No API has so many, and each takes a step of Python."""


class Span(NamedTuple):
    """A value's place: from `start` up to `end`, in bytes."""

    start: int
    end: int


class Member(NamedTuple):
    """A member of an object: its key, decoded, and the place of its value."""

    key: str
    value: Span


class Change(NamedTuple):
    """What is to stand in a place instead."""

    where: Span
    text: bytes


def members(text: bytes, *, once: bool = False) -> Iterator[Member]:
    """Yield the members of the object that a text is, one whose key comes twice both times.

    A byte order mark before it does no harm. Raises `ValueError` for a text that is no object, for
    more than `MAX_MEMBERS`, and with `once` for a key that comes twice.
    """
    position = _behind(text, _start(text), b"{")
    if text[position : position + 1] == b"}":
        return
    guesses = _long_values(text)
    seen = set[str]()
    for _ in range(MAX_MEMBERS):
        found = _KEY.match(text, position)
        if found is None:
            raise _fault(position)
        key = _decoded(found[1])
        start = found.end()
        guess = guesses.get(key)
        if guess is not None and text.startswith(guess, start):
            end = start + len(guess)
        elif once and text.startswith(_LONG, start):
            # What the decoder has under this key is another value.
            raise _repeated(key)
        else:
            end = _end_of_value(text, start)
        if once and key in seen:
            raise _repeated(key)
        seen.add(key)
        yield Member(key, Span(start, end))
        after = _NEXT.match(text, end)
        if after is None:
            raise _fault(end)
        if after[1] == b"}":
            return
        position = after.end()
    raise ValueError(f"the object has more than {MAX_MEMBERS:,} members")


def elements(text: bytes) -> Iterator[Span]:
    """Yield the places of the values in the array that a text is.

    Raises `ValueError` for a text that is no array.
    """
    position = _behind(text, _start(text), b"[")
    if text[position : position + 1] == b"]":
        return
    while True:
        end = _end_of_value(text, position)
        yield Span(position, end)
        position = _without_space(text, end)
        if text[position : position + 1] == b"]":
            return
        position = _behind(text, position, b",")


def member(text: bytes, key: str) -> Span | None:
    """Return the place of a member's value, of several the last one's, as decoders do."""
    found = [each.value for each in members(text) if each.key == key]
    return found[-1] if found else None


def with_members(text: bytes, values: Mapping[str, bytes]) -> bytes:
    """Return the object with these values (JSON) for these members.

    One whose key comes twice has the value both times, since readers differ in which of them
    counts. What the object does not have is added at its end.
    """
    found = list(members(text))
    changes = _changes(found, values)
    there = {each.key for each in found}
    added = [_encoded(key) + b":" + value for key, value in values.items() if key not in there]
    if added:
        end = found[-1].value.end if found else _start(text) + 1
        joined = b",".join(added)
        changes.append(Change(Span(end, end), b"," + joined if found else joined))
    return changed(text, changes)


def with_existing(text: bytes, values: Mapping[str, bytes]) -> bytes:
    """Return the object with these values for those of these members that it has."""
    return changed(text, _changes(members(text), values))


def changed(text: bytes, changes: list[Change]) -> bytes:
    """Return the text with these changes; they are in the order of their places."""
    pieces = []
    position = 0
    for where, new in changes:
        pieces += [text[position : where.start], new]
        position = where.end
    return b"".join((*pieces, text[position:]))


def _changes(found: Iterable[Member], values: Mapping[str, bytes]) -> list[Change]:
    return [Change(each.value, values[each.key]) for each in found if each.key in values]


def _long_values(text: bytes) -> dict[str, bytes]:
    """Return an object's members that are no numbers or words, without their places.

    This decoder is some ten times as fast as the walk. What begins like one of these values is
    that value: a closing bracket or quote ends it. Of a key that comes twice there is one.
    """
    try:
        values = _decode_raw(memoryview(text)[_start(text) :])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    raw = ((key, bytes(value)) for key, value in values.items())
    return {key: value for key, value in raw if value.startswith(_LONG)}


def _end_of_value(text: bytes, start: int) -> int:
    """Return where the value ends that begins here."""
    if text[start : start + 1] not in (b"{", b"["):
        scalar = _STRING.match(text, start) or _SCALAR.match(text, start)
        if scalar is None:
            raise _fault(start)
        return scalar.end()
    depth = 0
    for found in _STRUCTURE.finditer(text, start):
        match text[found.start()]:
            case 0x7B | 0x5B:  # an opening bracket
                depth += 1
            case 0x7D | 0x5D:
                depth -= 1
                if not depth:
                    return found.end()
    raise _fault(start)


def _start(text: bytes) -> int:
    mark = len(codecs.BOM_UTF8) if text.startswith(codecs.BOM_UTF8) else 0
    return _without_space(text, mark)


def _behind(text: bytes, position: int, sign: bytes) -> int:
    """Return the place of what follows a sign that must be here."""
    if text[position : position + 1] != sign:
        raise _fault(position)
    return _without_space(text, position + 1)


def _without_space(text: bytes, position: int) -> int:
    space = _SPACE.match(text, position)
    return position if space is None else space.end()


def _decoded(key: bytes) -> str:
    if b"\\" not in key and key.isascii():
        return key[1:-1].decode("ascii")
    decoded: str = json.loads(key.decode("utf-8", "surrogatepass"), strict=False)
    return decoded


def _encoded(key: str) -> bytes:
    return json.dumps(key).encode("ascii")


def _repeated(key: str) -> ValueError:
    return ValueError(f"`{key:.100}` comes twice in one object")


def _fault(position: int) -> ValueError:
    return ValueError(f"the text is not the JSON that it should be (byte {position})")
