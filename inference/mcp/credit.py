"""What an answer of several rounds may come to cost, held before each of them.

Nobody knows before how many rounds there will be. What is held when a request is let in is for the
first; with each further one more is held, so that a team never spends what it does not have.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from inference.events import Usage
from inference.request import GenerationRequest


class NextRound(msgspec.Struct, frozen=True, kw_only=True):
    """A round that is to be begun: `used` is what the rounds before it have, `prompt_tokens` the
    most that its prompt may have but for what a chat template adds. It is no longer than
    `context_tokens`, and its answer no longer than what `request` says."""

    request: GenerationRequest
    used: Usage
    prompt_tokens: int
    context_tokens: int


class Credit(Protocol):
    """Who knows what teams may spend."""

    async def covers(self, a_round: NextRound) -> bool:
        """Hold what the answer will have cost at most after this round; False if it is too much,
        or if nobody can tell."""
