"""What a request's body does not say, and the reading of its switches by what the model can do."""

from __future__ import annotations

from dataclasses import dataclass

from inference.request import Lane, Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseContext:
    """What the body does not say.

    `vision`, `images_without_vision`, `reasoning` and `context_tokens` are the catalogue's words on
    the model; `server_tools`: it has tools that the server runs, which are known to its engine
    only. The other fields mean what `GenerationRequest` says they mean.
    """

    request_id: str
    model: str
    deadline_s: float
    lane: Lane = Lane.REALTIME
    owner: Owner | None = None
    cache_salt: str | None = None
    context_tokens: int = 0
    vision: bool = False
    images_without_vision: str = "placeholder"
    reasoning: str = "none"
    server_tools: bool = False
    shares_prompt: bool = True

    def thinks(self, wanted: bool | None) -> bool:
        """Decide whether the model thinks: what it can, then what is asked, then its default."""
        if self.reasoning in ("none", "always"):
            return self.reasoning == "always"
        return self.reasoning == "default_on" if wanted is None else wanted
