"""How long a prompt and an answer may be, in the words that callers' tools look for."""

from __future__ import annotations

from inference.errors import ErrorCode, TandemError
from inference.request import Sampling


def allowed_tokens(*, prompt_tokens: int, sampling: Sampling, context_tokens: int) -> int:
    """Return how many tokens the answer may have. Raises what `check_lengths` raises."""
    max_tokens = sampling.max_tokens
    if sampling.cut_to_context:
        # At least one token is left, or the prompt is too long.
        check_lengths(prompt_tokens=prompt_tokens, max_tokens=0, context_tokens=context_tokens - 1)
        return min(max_tokens, context_tokens - prompt_tokens)
    check_lengths(prompt_tokens=prompt_tokens, max_tokens=max_tokens, context_tokens=context_tokens)
    return max_tokens


def check_lengths(*, prompt_tokens: int, max_tokens: int, context_tokens: int) -> None:
    """Raise `TandemError` unless the prompt and the longest allowed answer fit the context.

    Both messages are Anthropic's own: clients match them to shorten the conversation or to ask
    for fewer tokens.
    """
    if prompt_tokens > context_tokens:
        raise TandemError(
            ErrorCode.PROMPT_TOO_LONG,
            f"prompt is too long: {prompt_tokens} tokens > {context_tokens} maximum",
        )
    if prompt_tokens + max_tokens > context_tokens:
        raise TandemError(
            ErrorCode.INVALID_REQUEST,
            "input length and `max_tokens` exceed context limit: "
            f"{prompt_tokens} + {max_tokens} > {context_tokens}, "
            "decrease input length or `max_tokens` and try again",
        )
