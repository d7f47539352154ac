"""Which models may stand in for which. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def fallback_fault(model: str, fallbacks: Mapping[str, str | None]) -> str | None:
    """Return what is wrong with a model's fallback, as a sentence; None: nothing.

    A request goes on to one other model and no further, so that a model which has a fallback can
    be none. `fallbacks` has the fallback of each model, by their ids.
    """
    fallback = fallbacks.get(model)
    if fallback is None:
        return None
    if fallback == model:
        return f"{model} is its own fallback."
    further = fallbacks.get(fallback)
    if further is not None:
        return f"{model} falls back to {fallback}, which falls back to {further} itself."
    before = sorted(name for name, other in fallbacks.items() if other == model)
    if before:
        return f"{model} falls back to {fallback} and is the fallback of {', '.join(before)}."
    return None
