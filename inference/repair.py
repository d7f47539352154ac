"""Repairs malformed JSON whose beginning was passed on already."""

from __future__ import annotations

import json
import re
from typing import Any

import json_repair
import msgspec

MAX_CHARS = 16_384
"""Repairing takes longer than linearly; this many characters are done in some 0.3 s."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
# The tokens of JSON that is valid as far as it goes: the last string may be open.
_TOKENS = re.compile(rf'{_STRING.pattern}?|[{{}}\[\],:]|[^\s{{}}\[\],:"]+')
_SIGNS = frozenset("{}[],:")


def repair(raw: str, sent: str) -> str | None:
    """Return what makes `sent` a whole JSON object that says what `raw` was meant to say.

    `sent` is JSON too, as far as it goes. None: `raw` is hopeless, or its repair would have had
    to begin in another way.
    """
    if len(raw) > MAX_CHARS:
        return None
    try:
        value: Any = json_repair.loads(raw)
        # Of text that is no object at all nothing may be left.
        if not isinstance(value, dict) or not (value or sent):
            return None
        return _continuation(sent, msgspec.json.encode(value).decode())
    except (ValueError, RecursionError):
        return None  # nested too deeply, a number too long, half a surrogate pair


def _continuation(sent: str, whole: str) -> str | None:
    """Return the rest of `whole`, another spelling of which begins with `sent`."""
    wanted = iter(_TOKENS.findall(whole))
    for token in _TOKENS.findall(sent):
        want = next(wanted, "")
        if token[0] == '"' and not _STRING.fullmatch(token):
            rest = _rest_of_string(token, want)
            return None if rest is None else rest + "".join(wanted)
        if not _mean_the_same(token, want):
            return None
    return "".join(wanted)


def _rest_of_string(begun: str, want: str) -> str | None:
    text, wanted = json.loads(f'{begun}"'), json.loads(want) if want[:1] == '"' else None
    if wanted is None or not wanted.startswith(text):
        return None
    return json.dumps(wanted[len(text) :])[1:]


def _mean_the_same(token: str, want: str) -> bool:
    if token == want:
        return True
    if token in _SIGNS or want in _SIGNS or not want:
        return False
    left, right = json.loads(token), json.loads(want)
    return type(left) is type(right) and bool(left == right)
