"""Which rows begin alike: an engine that runs those together computes their beginning once."""

from __future__ import annotations

import hashlib
from itertools import takewhile

import msgspec

from inference.request import GenerationRequest, Message, Role

# In bytes of JSON. Rows that agree in so much of what the caller says are taken to go on alike.
_BEGINNING = 1_000
_encode = msgspec.json.Encoder().encode


def prefix_of(request: GenerationRequest) -> int:
    """Return what `Work.prefix` has: 64 bits, signed, the same in every process.

    The high half stands for the tools and the system's turn, the low half for the beginning of what
    follows. So, in the order of these numbers, rows with one system prompt stand together, and
    among them those that have more in common. Two beginnings may have one number: it only orders.
    """
    ahead = tuple(takewhile(_is_of_the_system, request.messages))
    following = request.messages[len(ahead) :]
    halves = _encode((request.tools, ahead)), _encode(following)[:_BEGINNING]
    digests = (hashlib.blake2b(half, digest_size=4).digest() for half in halves)
    return int.from_bytes(b"".join(digests), signed=True)


def _is_of_the_system(message: Message) -> bool:
    return message.role is Role.SYSTEM
