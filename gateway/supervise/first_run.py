"""What a new install needs once: tables, a model, the operator's account and a first key."""

from __future__ import annotations

import secrets

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection
from django.db.models import Q

from gateway.keys import mint
from gateway.models import ApiKey
from inference.models import Model
from inference.weights import DEFAULT_MODEL, register_default_model

OPERATOR = "admin"

# Any number that nobody else locks.
_MIGRATING = 7_226_301


def migrate() -> None:
    """Bring the tables up to date and, where no model is listed, list the default one.

    Machines that share a database take turns.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_MIGRATING])
        try:
            call_command("migrate", interactive=False, verbosity=0)
            if not Model.objects.exists():
                register_default_model()
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_MIGRATING])


def serves_default_model() -> bool:
    """Say whether the catalogue has the default model enabled, with the default weights."""
    return Model.objects.filter(id=DEFAULT_MODEL, weights=DEFAULT_MODEL, enabled=True).exists()


def make_operator() -> str | None:
    """Make the operator's account if there is none, and return its password: never seen again."""
    users = get_user_model().objects
    if users.filter(Q(is_superuser=True) | Q(username=OPERATOR)).exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_superuser(OPERATOR, password=password)
    return password


def mint_first_key() -> str | None:
    """Mint a key if there is none, and return its text: never seen again."""
    return None if ApiKey.objects.exists() else mint("first key")
