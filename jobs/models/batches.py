"""Batches: many requests that may take until the end of their window."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from jobs.models.files import StoredFile


class Batch(models.Model):
    """One batch, whichever dialect it was sent in. Its rows are `jobs.models.Work`.

    The counts and sums change in the transaction that ends a row, so that they are always those of
    the rows. Rows that were never run, because they could not be read, count as failed too.
    """

    class Form(models.TextChoices):
        """Whose API it was made by, and so how it is shown."""

        OPENAI = "openai", "OpenAI (files)"
        ANTHROPIC = "anthropic", "Anthropic (Message Batches)"
        SFERENCE = "sference", "sference (inline)"

    class Status(models.TextChoices):
        """Where it is in its life. The last four are final."""

        VALIDATING = "validating", "Validating"
        IN_PROGRESS = "in_progress", "In progress"
        CANCELLING = "cancelling", "Cancelling"
        FINALIZING = "finalizing", "Finalizing"
        COMPLETED = "completed", "Completed"
        FAILED = "failed", "Failed"
        EXPIRED = "expired", "Expired"
        CANCELLED = "cancelled", "Cancelled"

    OPEN = (Status.VALIDATING, Status.IN_PROGRESS, Status.CANCELLING, Status.FINALIZING)

    id = models.UUIDField(primary_key=True)
    form = models.CharField(max_length=20, choices=Form)
    # Who. Names are kept as they were, as in the audit trail.
    team_id = models.BigIntegerField()
    team_name = models.CharField(max_length=200, blank=True)
    key_id = models.UUIDField()
    key_name = models.CharField(max_length=200, blank=True)
    client = models.CharField(max_length=200, blank=True)
    address = models.CharField(max_length=64, blank=True)
    # What.
    endpoint = models.CharField(max_length=50, help_text="The path that its rows are for.")
    model = models.CharField(max_length=200, blank=True, help_text="Empty: several.")
    metadata = models.JSONField(default=dict)
    idempotency_key = models.CharField(max_length=255, blank=True)
    request_digest = models.BinaryField(
        max_length=32, default=b"", help_text="SHA-256 of what was asked, for the idempotency key."
    )
    input_file = models.ForeignKey(
        StoredFile, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    # Kept for what is shown after the file is gone.
    input_file_ref = models.UUIDField(null=True)
    output_file = models.ForeignKey(
        StoredFile, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    error_file = models.ForeignKey(
        StoredFile, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    output_expires_after_s = models.PositiveIntegerField(null=True)
    # When.
    window_s = models.PositiveIntegerField(default=24 * 60 * 60)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(help_text="The end of its window.")
    in_progress_at = models.DateTimeField(null=True)
    finalizing_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    cancelling_at = models.DateTimeField(null=True)
    archived_at = models.DateTimeField(null=True, help_text="Since when its results are gone.")
    # How it went.
    status = models.CharField(max_length=20, choices=Status, default=Status.VALIDATING)
    errors = models.JSONField(default=list, help_text="Why it failed as a whole.")
    total = models.PositiveIntegerField(default=0)
    completed = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    cancelled = models.PositiveIntegerField(default=0)
    expired = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    thinking_tokens = models.PositiveBigIntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0)

    class Meta:
        """Listed newest first, each team its own."""

        ordering = ["-created_at", "-id"]
        verbose_name_plural = "batches"
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="batch_newest"),
            models.Index(fields=["team_id", "form", "-created_at", "-id"], name="batch_team"),
            models.Index(
                fields=["expires_at"],
                condition=Q(status__in=["validating", "in_progress", "cancelling", "finalizing"]),
                name="batch_open",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["team_id", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="batch_idempotency",
            )
        ]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def ended_rows(self) -> int:
        """How many rows have ended, whichever way."""
        return self.completed + self.failed + self.cancelled + self.expired
