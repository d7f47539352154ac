"""Files that teams upload, and those that batches write for them."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class StoredFile(models.Model):
    """One file of a team. Its bytes lie in Django's default storage under `name`.

    A row is made when the bytes are there, whole, and no sooner; it is deleted before they are, so
    that a name in the storage that no row has belongs to nobody. `lines` counts the requests in a
    batch's input.
    """

    class Purpose(models.TextChoices):
        """What the file is for, in OpenAI's words."""

        BATCH = "batch", "Batch input"
        BATCH_OUTPUT = "batch_output", "Batch output"
        USER_DATA = "user_data", "User data"

    id = models.UUIDField(primary_key=True)
    team_id = models.BigIntegerField()
    key_id = models.UUIDField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True)
    filename = models.CharField(max_length=255)
    purpose = models.CharField(max_length=20, choices=Purpose)
    size_bytes = models.PositiveBigIntegerField()
    lines = models.PositiveIntegerField(null=True)
    digest = models.BinaryField("SHA-256", max_length=32)
    name = models.CharField("name in the storage", max_length=255)

    class Meta:
        """Listed newest first, each team its own."""

        ordering = ["-created_at", "-id"]
        verbose_name = "file"
        indexes = [
            models.Index(fields=["team_id", "-created_at", "-id"], name="file_team"),
            models.Index(
                fields=["expires_at"],
                condition=models.Q(expires_at__isnull=False),
                name="file_expiry",
            ),
        ]

    def __str__(self) -> str:
        return self.filename
