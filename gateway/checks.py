"""What `manage.py check` finds wrong with an install, beyond what a single setting's value shows.

Checks of the database's content are only warnings: they also run before `migrate`, and must not
keep an install from being upgraded.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.contrib.auth.models import User
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError

from gateway.config import Config
from gateway.models import Team
from inference.models import Model
from inference.names import claimed_twice

_SECRET_KEY_LENGTH = 32
# Names in one message.
_SHOWN = 10


@register(Tags.security)
def check_exposure(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Look for settings that are harmless on this machine alone and dangerous beyond it."""
    config: Config = settings.TANDEM
    if _is_loopback(config.HOST):
        return []
    messages: list[CheckMessage] = []
    if config.DEBUG:
        messages.append(
            Warning(
                f"DEBUG is on and HOST={config.HOST} can be reached from other machines.",
                hint="Error pages show settings and source code. Unset DEBUG.",
                id="gateway.W001",
            )
        )
    if "*" in config.ALLOWED_HOSTS:
        messages.append(
            Warning(
                f"Any Host header is accepted and HOST={config.HOST} can be reached from other "
                "machines.",
                hint="Set ALLOWED_HOSTS to the names that people use, separated by commas.",
                id="gateway.W003",
            )
        )
    return messages


@register(Tags.security)
def check_sign_in(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Look at how operators sign in where others can reach the admin."""
    config: Config = settings.TANDEM
    if _is_loopback(config.HOST):
        return []
    messages: list[CheckMessage] = []
    if not config.HTTPS:
        messages.append(
            Warning(
                f"HOST={config.HOST} can be reached from other machines, and HTTPS is off: keys, "
                "passwords and cookies may be read on their way.",
                hint="Put a proxy that speaks TLS in front, and set HTTPS=true.",
                id="gateway.W008",
            )
        )
    if config.GATEWAY_ROLE != "api" and not config.ADMIN_TWO_FACTOR:
        messages.append(
            Warning(
                "Operators sign in to the admin with a password alone, from any machine.",
                hint="Set ADMIN_TWO_FACTOR=true, or let only some machines reach /admin.",
                id="gateway.W009",
            )
        )
    return messages


@register(Tags.security)
def check_secret_key(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Refuse a secret key that could be guessed."""
    if len(settings.SECRET_KEY) >= _SECRET_KEY_LENGTH:
        return []
    return [
        Error(
            f"SECRET_KEY has fewer than {_SECRET_KEY_LENGTH} characters.",
            hint="Unset it to have one made, or set the output of: openssl rand -base64 48",
            id="gateway.E002",
        )
    ]


@register(Tags.database)
def check_catalogue(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Compare the catalogue with itself, with the disk and with what this process is to serve."""
    if not databases:
        return []
    try:
        models = list(Model.objects.filter(enabled=True))
    except DatabaseError:
        return []  # not migrated yet, or away: `migrate` and /readyz say so
    return [
        *_shared_names(models),
        *_missing_weights(models),
        *_unknown_engine_models(models),
        *_kept_prompts(models),
    ]


@register(Tags.database)
def check_operators(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Look for accounts that are let in and can do nothing."""
    if not databases:
        return []
    idle = User.objects.filter(
        is_active=True,
        is_staff=True,
        is_superuser=False,
        groups__isnull=True,
        user_permissions__isnull=True,
    ).order_by("username")
    try:
        names = list(idle.values_list("username", flat=True)[:_SHOWN])
    except DatabaseError:
        return []  # not migrated yet, or away: `migrate` and /readyz say so
    if not names:
        return []
    return [
        Warning(
            f"{', '.join(names)} can sign in to the admin and see nothing there.",
            hint="Give each account a role: viewer, operator, billing or owner.",
            id="gateway.W010",
        )
    ]


def _shared_names(models: list[Model]) -> list[CheckMessage]:
    return [
        Warning(
            f"Several models are called {name!r}: {', '.join(ids)}.",
            hint="Requests for that name reach only one of them. Change the others' aliases.",
            id="gateway.W004",
        )
        for name, ids in claimed_twice((model.id, model.aliases) for model in models).items()
    ]


def _missing_weights(models: list[Model]) -> list[CheckMessage]:
    home = settings.TANDEM.DATA_DIR / "models"
    return [
        Warning(
            f"The weights of model {model.id!r} are not in {home / model.weights}.",
            hint="Run `manage.py fetch_model`, correct its weights folder, or disable it.",
            id="gateway.W005",
        )
        for model in models
        if model.backend == Model.Backend.VLLM
        and not (model.weights and (home / model.weights).is_dir())
    ]


def _unknown_engine_models(models: list[Model]) -> list[CheckMessage]:
    known = {model.id for model in models}
    return [
        Warning(
            f"ENGINE_MODELS names {name!r}, which is not an enabled model of the catalogue.",
            hint=f"Enabled models: {', '.join(sorted(known)) or 'none'}.",
            id="gateway.W006",
        )
        for name in settings.TANDEM.ENGINE_MODELS
        if name not in known
    ]


def _kept_prompts(models: list[Model]) -> list[CheckMessage]:
    """Look for prompts that are kept on disk although a team was promised that none is."""
    on_disk = sorted(model.id for model in models if model.kv_offload_dir)
    teams = Team.objects.filter(zero_data_retention=True).order_by("name")
    names = list(teams.values_list("name", flat=True)[:_SHOWN]) if on_disk else []
    if not names:
        return []
    return [
        Warning(
            f"Prompts of {', '.join(names)}, with zero data retention, are kept on disk by the "
            f"prefix cache of {', '.join(on_disk)}.",
            hint="What is computed for a prompt tells what it was. Empty the model's "
            "kv_offload_dir, or let the keys of these teams use other models only.",
            id="gateway.W007",
        )
    ]


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
