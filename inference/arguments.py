"""Makes one valid JSON object of the arguments that a model writes, while it writes them.

What can be trusted goes on at once; what may have to be repaired waits. Text inside a string flows.
Everything else is held back until a value follows it, because a separator or a closing quote is
where malformed JSON shows: in `"he said "hi""` the second quote ends nothing.
"""

from __future__ import annotations

import json
import re
from enum import Enum, auto

from inference.repair import repair

MALFORMED = "__malformed_arguments__"
"""The member that holds what the model wrote when nothing else can be made of it."""

MAX_DEPTH = 100
"""Objects and arrays inside one another; deeper ones are taken for a model that runs in circles."""

# Whole numbers end at a thousand digits: Python's own reader gives up at 4,300.
_NUMBER = r"-?(?:0|[1-9][0-9]{0,999})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_TOKEN = re.compile(rf'[ \t\n\r]*([{{}}\[\],:"]|{_NUMBER}|true|false|null)')
_WORD = re.compile(r"[ \t\n\r]*[-+.0-9A-Za-z]*")
_CUT_WORD = re.compile(r"[ \t\n\r]*(?:-?(?:[0-9][0-9.eE+-]*)?|t(?:ru?)?|f(?:a(?:ls?)?)?|n(?:ul?)?)")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_LONE_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")


class _Expects(Enum):
    OBJECT = auto()
    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    FIRST_VALUE = auto()
    VALUE = auto()
    NEXT = auto()
    END = auto()


_KEYS = (_Expects.FIRST_KEY, _Expects.KEY)
_VALUES = (_Expects.FIRST_VALUE, _Expects.VALUE)
_CLOSING = {"{": "}", "[": "]"}


class _MalformedError(Exception):
    """What was read so far cannot go on as JSON."""


class ArgumentsStream:
    """Reads the arguments of one call piece by piece.

    All that `feed` and `finish` return is, joined, one JSON object, however the input is cut.
    Valid JSON comes out as it went in. Malformed JSON is repaired; where that would contradict
    what was returned already, the whole text stands in the `MALFORMED` member.
    """

    def __init__(self) -> None:
        self._raw: list[str] = []
        self._sent: list[str] = []
        self._text = ""  # from the first character that is not understood yet
        self._at = 0
        self._value = ""  # the end of a value, or an opening bracket, until something follows it
        self._lead = ""  # the comma, key and colon before the next value
        self._open: list[str] = []  # the brackets that will close what is open
        self._expects = _Expects.OBJECT
        self._inside: _Expects | None = None  # KEY or VALUE: what the string that is read is
        self._malformed = False
        self._ended = False

    def feed(self, fragment: str) -> str:
        """Take the next piece and return what can be passed on, empty if nothing can."""
        self._raw.append(fragment)
        if self._malformed:
            return ""
        self._text = self._text[self._at :] + fragment
        self._at = 0
        return self._read()

    def finish(self) -> str:
        """Return what makes the object whole. No arguments at all are an empty object."""
        self._ended = True
        last = "" if self._malformed else self._read()
        raw = "".join(self._raw)
        if not raw.strip():
            return "{}"
        if self._was_only_cut():
            return last + self._closed()
        sent = "".join(self._sent)
        return last + (repair(raw, sent) or self._surrendered(raw, sent))

    def _read(self) -> str:
        before = len(self._sent)
        try:
            while self._at < len(self._text) and self._step():
                pass
        except _MalformedError:
            self._malformed = True
        return "".join(self._sent[before:])

    def _step(self) -> bool:
        """Read one token, or some of a string. Return whether there was enough to read."""
        return self._read_token() if self._inside is None else self._read_string(self._inside)

    def _read_token(self) -> bool:
        match = _TOKEN.match(self._text, self._at)
        is_word = _WORD.fullmatch(self._text, self._at) is not None
        if is_word and not self._ended:
            return False  # it may still grow
        if match is None or (is_word and match.end() < len(self._text)):
            if _CUT_WORD.fullmatch(self._text, self._at):
                return False
            raise _MalformedError
        self._take(match.group(1), match.group())
        self._at = match.end()
        return True

    def _take(self, token: str, spelled: str) -> None:
        """Move on by one token; `spelled` has the space before it too."""
        match token:
            case "}" | "]":
                self._take_end(token, spelled)
            case ",":
                self._require(_Expects.NEXT)
                self._confirm()
                self._lead = spelled
                self._expects = _Expects.KEY if self._open[-1] == "}" else _Expects.VALUE
            case ":":
                self._require(_Expects.COLON)
                self._lead += spelled
                self._expects = _Expects.VALUE
            case '"' if self._expects in _KEYS:
                self._lead += spelled
                self._inside = _Expects.KEY
            case '"':
                self._begin_value()
                self._send(spelled)
                self._inside = _Expects.VALUE
            case "{" | "[":
                self._take_start(token, spelled)
            case _:
                self._begin_value()
                self._value = spelled
                self._expects = _Expects.NEXT

    def _take_start(self, bracket: str, spelled: str) -> None:
        if len(self._open) == MAX_DEPTH:
            raise _MalformedError
        if self._expects is not _Expects.OBJECT or bracket == "[":
            self._begin_value()
        self._value = spelled
        self._open.append(_CLOSING[bracket])
        self._expects = _Expects.FIRST_KEY if bracket == "{" else _Expects.FIRST_VALUE

    def _take_end(self, bracket: str, spelled: str) -> None:
        self._require(_Expects.NEXT, _Expects.FIRST_KEY if bracket == "}" else _Expects.FIRST_VALUE)
        if self._open[-1] != bracket:
            raise _MalformedError
        self._confirm()
        self._value = spelled
        self._open.pop()
        self._expects = _Expects.NEXT if self._open else _Expects.END

    def _require(self, *expected: _Expects) -> None:
        if self._expects not in expected:
            raise _MalformedError

    def _begin_value(self) -> None:
        """Pass on what the value that begins now has confirmed."""
        self._require(*_VALUES)
        self._confirm()
        self._send(self._lead)
        self._lead = ""

    def _confirm(self) -> None:
        self._send(self._value)
        self._value = ""

    def _send(self, text: str) -> None:
        if text:
            self._sent.append(text)

    def _read_string(self, kind: _Expects) -> bool:
        if plain := _PLAIN.match(self._text, self._at):
            self._take_text(plain.group(), plain.end())
            return True
        char = self._text[self._at]
        if char == "\\":
            return self._read_escape()
        if char != '"':
            # Models write line breaks into strings as they are.
            self._take_text(json.dumps(char)[1:-1], self._at + 1)
            return True
        self._at += 1
        self._inside = None
        if kind is _Expects.KEY:
            self._lead += char
            self._expects = _Expects.COLON
        else:
            self._value = char
            self._expects = _Expects.NEXT
        return True

    def _read_escape(self) -> bool:
        text, at = self._text, self._at
        if pair := _PAIR.match(text, at):
            self._take_text(pair.group(), pair.end())
        elif half := _LONE_HALF.match(text, at):
            following = text[half.end() : half.end() + 6]
            if len(following) < 6 and following[:1] in ("", "\\") and not self._ended:
                return False  # the other half may follow
            self._take_text("\\ufffd", half.end())
        elif escape := _ESCAPE.match(text, at):
            self._take_text(escape.group(), escape.end())
        elif _CUT_ESCAPE.fullmatch(text, at):
            return False
        else:
            raise _MalformedError
        return True

    def _take_text(self, text: str, end: int) -> None:
        self._at = end
        if self._inside is _Expects.KEY:
            self._lead += text
        else:
            self._send(text)

    def _was_only_cut(self) -> bool:
        """Tell whether all that is wrong is that the text stops too early."""
        if self._malformed or self._expects is _Expects.OBJECT:
            return False
        return (
            self._inside is not None
            or self._expects in _VALUES
            or not self._text[self._at :].strip()
        )

    def _closed(self) -> str:
        """Return the end of what is only cut. What has no value yet is left out."""
        if self._expects is _Expects.END:
            return self._value + self._text[self._at :]
        quote = '"' if self._inside is _Expects.VALUE else ""
        return quote + self._value + "".join(reversed(self._open))

    def _surrendered(self, raw: str, sent: str) -> str:
        """Close what was sent as it is, and say what the model wrote."""
        member = f"{json.dumps(MALFORMED)}: {json.dumps(raw)}}}"
        if not sent:
            return "{" + member
        rest = ""
        if self._expects is not _Expects.END:
            quote = '"' if self._inside is _Expects.VALUE else ""
            rest = quote + self._value + "".join(reversed(self._open[1:]))
        is_empty = sent.strip() == "{" and not rest
        return rest + ("" if is_empty else ", ") + member
