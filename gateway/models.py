"""Who may call: teams and their API keys."""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from jobs.amounts import MAX_MICROS
from jobs.quota.claims import MAX_PER_MINUTE


class Limited(models.Model):
    """Limits that a team and a key can both have. Empty means none."""

    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    input_tokens_per_minute = models.PositiveBigIntegerField(
        null=True, blank=True, validators=[MaxValueValidator(MAX_PER_MINUTE)]
    )
    output_tokens_per_minute = models.PositiveBigIntegerField(
        null=True, blank=True, validators=[MaxValueValidator(MAX_PER_MINUTE)]
    )
    max_concurrent = models.PositiveIntegerField(
        "requests at once", null=True, blank=True, validators=[MinValueValidator(1)]
    )

    class Meta:
        """No table of its own."""

        abstract = True


class Team(Limited):
    """The owner of keys. Requests of one team share a prefix cache, and only they do."""

    name = models.CharField(max_length=200, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    prepaid = models.BooleanField(
        default=False,
        help_text="Requests need a balance (402 without). Off: usage is counted, never refused.",
    )
    daily_spend_cap_micros = models.PositiveBigIntegerField(
        null=True, blank=True, validators=[MaxValueValidator(MAX_MICROS)]
    )
    monthly_spend_cap_micros = models.PositiveBigIntegerField(
        null=True, blank=True, validators=[MaxValueValidator(MAX_MICROS)]
    )
    zero_data_retention = models.BooleanField(
        default=False, help_text="Never keep what requests say or what is answered."
    )

    class Meta:
        """Listed by name."""

        ordering = ["name"]
        permissions = [("change_spending", "Can change what a team may spend")]

    def __str__(self) -> str:
        return self.name


class Scope(models.TextChoices):
    """What a key may do."""

    INFERENCE = "inference", "Call models"
    BATCHES = "batches", "Submit batches and files"
    READ = "read", "Read its team's usage, billing and activity"
    ADMIN = "admin", "Manage its team: keys, settings, top-ups"


def default_scopes() -> list[str]:
    """What a key may do unless it is said: everything but managing its team."""
    return [Scope.INFERENCE, Scope.BATCHES, Scope.READ]


class ApiKey(Limited):
    """A key, stored only as the SHA-256 of its text; `prefix` is kept so that people know it.

    `allowed_models` holds catalogue ids; empty means every model.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="keys")
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=20, editable=False)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    owner = models.CharField(max_length=200, blank=True, help_text="Who answers for its use.")
    scopes = ArrayField(models.CharField(max_length=20, choices=Scope), default=default_scopes)
    allowed_models = ArrayField(
        models.CharField(max_length=200),
        default=list,
        blank=True,
        help_text="Catalogue ids, separated by commas. Empty: every model.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """Listed with the newest first."""

        ordering = ["-created_at"]
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
