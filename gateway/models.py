"""Who may call: teams and their API keys."""

from __future__ import annotations

import uuid

from django.db import models


class Team(models.Model):
    """The owner of keys. Requests of one team share a prefix cache, and only they do."""

    name = models.CharField(max_length=200, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        """Listed by name."""

        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ApiKey(models.Model):
    """A key, stored only as the SHA-256 of its text; `prefix` is kept so that people know it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="keys")
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=20, editable=False)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """Listed with the newest first."""

        ordering = ["-created_at"]
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
