"""Work that lasts: rows of batches and background responses, until an engine has done them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from jobs.models.batches import Batch


class Worker(models.Model):
    """An engine that takes work, under its engine id, and until when what it has is its own.

    One lease for all that an engine has: renewed by one short write, however many rows it runs.
    """

    id = models.UUIDField(primary_key=True)
    model = models.CharField(max_length=200)
    host = models.CharField(max_length=255, blank=True)
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.id)


class Work(models.Model):
    """One request that an engine takes when it has room: a batch's row, a background response.

    `request` is the canonical request in MessagePack (`inference.request`), emptied at the end.
    `id` is the request's id, in the audit trail and the ledger too. `rank` and `prefix` order what
    waits, as `jobs.work.queue` says. `worker_id` names the engine that runs it; when that engine's
    lease ends, the row goes back and `deaths` counts it.
    A background response's row is removed at its end: what became of it is in `StoredResponse`.
    """

    class State(models.TextChoices):
        """Where it is."""

        PENDING = "pending", "Pending"
        RUNNING = "running", "Running"
        DONE = "done", "Done"

    class Outcome(models.TextChoices):
        """How a row ended."""

        COMPLETED = "completed", "Completed"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"
        EXPIRED = "expired", "Expired"

    id = models.UUIDField(primary_key=True)
    batch = models.ForeignKey(
        Batch, on_delete=models.CASCADE, null=True, related_name="rows", db_index=False
    )
    line = models.PositiveIntegerField(default=0, help_text="Its place in the batch, from 1.")
    custom_id = models.CharField(max_length=512, blank=True)
    team_id = models.BigIntegerField()
    key_id = models.UUIDField()
    dialect = models.CharField(max_length=20)
    model = models.CharField(max_length=200)
    lane = models.CharField(max_length=20)
    rank = models.PositiveSmallIntegerField(help_text="Lower ranks run first.")
    created_at = models.DateTimeField(default=timezone.now)
    deadline_at = models.DateTimeField()
    prefix = models.BigIntegerField(
        default=0, help_text="What it begins with: rows that begin alike run together."
    )
    max_tokens = models.PositiveBigIntegerField(default=0)
    body_bytes = models.PositiveBigIntegerField(default=0)
    body_digest = models.BinaryField(max_length=32, default=b"")
    ignored_fields = models.JSONField(default=list)
    hold_micros = models.BigIntegerField(
        default=0, help_text="The most that it can cost, held while it runs."
    )
    logged = models.BooleanField(default=False, help_text="Whether its events are kept in a log.")
    origin = models.JSONField(
        default=dict,
        help_text="Who asked for it, where no batch says so: fields of the audit trail.",
    )
    request = models.BinaryField(default=b"")
    echo = models.BinaryField(
        null=True,
        help_text="What of its body the answer repeats, in JSON, where its dialect repeats any.",
    )
    # How it goes.
    state = models.CharField(max_length=10, choices=State, default=State.PENDING)
    worker_id = models.UUIDField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    deaths = models.PositiveSmallIntegerField(default=0)
    preemptions = models.PositiveSmallIntegerField(
        default=0, help_text="How often it gave its place to another request."
    )
    not_before = models.DateTimeField(null=True, help_text="It is tried again no sooner.")
    cancel_requested = models.BooleanField(default=False)
    taken_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    # How it went.
    outcome = models.CharField(max_length=10, choices=Outcome, blank=True)
    answer = models.BinaryField(
        default=b"", help_text="An `inference.fold.Answer` in MessagePack, compressed."
    )
    error_code = models.CharField(max_length=50, blank=True)
    error_message = models.CharField(max_length=2000, blank=True)

    class Meta:
        """Indexed for the three questions asked of it: what next, what runs, what became of it."""

        verbose_name = "piece of work"
        verbose_name_plural = "pieces of work"
        indexes = [
            models.Index(
                fields=["model", "rank", "team_id", "deadline_at", "prefix", "id"],
                condition=Q(state="pending"),
                name="work_next",
            ),
            models.Index(
                fields=["model", "deadline_at", "prefix", "id"],
                condition=Q(state="pending", rank=1),
                name="work_urgent",
            ),
            models.Index(fields=["worker_id"], condition=Q(state="running"), name="work_running"),
            models.Index(fields=["deadline_at"], condition=~Q(state="done"), name="work_deadline"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["batch", "line"], condition=Q(batch__isnull=False), name="work_line"
            )
        ]

    def __str__(self) -> str:
        return str(self.id)
