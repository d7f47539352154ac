"""The names that callers can use for models, and the ones that two models claim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


def claimed_twice(models: Iterable[tuple[str, Iterable[str]]]) -> dict[str, list[str]]:
    """Return each name that several models claim, with the ids of those, both in order.

    A model is its id and its aliases. Names are compared, and returned, without regard to case.
    """
    claims: defaultdict[str, set[str]] = defaultdict(set)
    for model_id, aliases in models:
        for name in (model_id, *aliases):
            claims[name.lower()].add(model_id)
    return {name: sorted(ids) for name, ids in sorted(claims.items()) if len(ids) > 1}
