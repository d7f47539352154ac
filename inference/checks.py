"""What `manage.py check` finds wrong with upstreams and fallbacks.

Only warnings: checks also run before `migrate`, and must not keep an install from being upgraded.
Keys are looked for in this process's own environment, which engine workers share where one file
configures all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Tags, Warning, register
from django.db import DatabaseError

from inference.errors import TandemError
from inference.fallbacks import fallback_fault
from inference.models import Model, Upstream
from inference.upstreams import read_options, read_secrets, url_fault

_REMOTE = (Model.Backend.OPENAI, Model.Backend.ANTHROPIC)


@register(Tags.database)
def check_upstreams(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Look at the models that others run, at who runs them, and at who stands in for whom."""
    if not databases:
        return []
    try:
        models = list(Model.objects.filter(enabled=True).select_related("upstream"))
    except DatabaseError:
        return []  # not migrated yet, or away: `migrate` and /readyz say so
    used = {model.upstream.name: model.upstream for model in models if model.upstream}
    return [
        *(message for name in sorted(used) for message in _upstream_faults(used[name])),
        *(message for model in models for message in _model_faults(model)),
        *_fallback_faults(models),
    ]


def _upstream_faults(upstream: Upstream) -> Iterator[CheckMessage]:
    if fault := url_fault(upstream.base_url):
        yield Warning(
            f"The address of upstream {upstream.name!r} {fault}.",
            hint="Set its base_url as its own SDK takes it, such as https://api.openai.com/v1.",
            id="inference.W001",
        )
    try:
        read_secrets(upstream.key)
    except TandemError as error:
        yield Warning(
            f"Upstream {upstream.name!r} cannot be asked: {error.message}.",
            hint="Set the variable or write the file that its key refers to, for engine workers "
            "too, and start them anew. Empty its key if it needs none.",
            id="inference.W002",
        )


def _model_faults(model: Model) -> Iterator[CheckMessage]:
    is_remote = model.backend in _REMOTE
    if is_remote and model.upstream is None:
        yield Warning(
            f"Model {model.id!r} is run by an upstream and has none.",
            hint="Choose its upstream in the admin, or disable it.",
            id="inference.W003",
        )
    if is_remote:
        try:
            read_options(model.upstream_options)
        except ValueError as error:
            yield Warning(
                f"The upstream_options of model {model.id!r} are wrong: {error}.",
                hint="docs/upstreams.md lists what they may hold.",
                id="inference.W004",
            )


def _fallback_faults(models: Sequence[Model]) -> Iterator[CheckMessage]:
    fallbacks = {model.id: model.fallback_id for model in models}
    for name, fallback in fallbacks.items():
        if fault := fallback_fault(name, fallbacks):
            yield Warning(
                fault,
                hint="A request goes on to one other model and no further. Choose a fallback that "
                "has none and is none.",
                id="inference.W005",
            )
        elif fallback is not None and fallback not in fallbacks:
            yield Warning(
                f"{name} falls back to {fallback}, which is disabled.",
                hint=f"Enable {fallback}, or choose another fallback.",
                id="inference.W006",
            )
