"""Responses that can be read again, and the streams that group them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone


class ResponseStream(models.Model):
    """A named group of background responses, as sference's clients make them."""

    class Status(models.TextChoices):
        """Whether it takes responses."""

        OPEN = "open", "Open"
        ARCHIVED = "archived", "Archived"
        CANCELLED = "cancelled", "Cancelled"

    id = models.UUIDField(primary_key=True)
    team_id = models.BigIntegerField()
    key_id = models.UUIDField(null=True)
    name = models.CharField(max_length=200, blank=True)
    status = models.CharField(max_length=20, choices=Status, default=Status.OPEN)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)
    closed_at = models.DateTimeField(null=True, help_text="Since when it is not open.")

    class Meta:
        """Listed newest first, each team its own."""

        ordering = ["-created_at", "-id"]
        indexes = [models.Index(fields=["team_id", "-created_at", "-id"], name="stream_team")]

    def __str__(self) -> str:
        return self.name or str(self.id)


class ResponseFeed(models.Model):
    """How many background responses of a team have ended: the last number of its feed.

    Its row is locked until the transaction that ends a response is over, so that numbers become
    visible in their order and nobody who reads on from one misses an earlier one.
    """

    team_id = models.BigIntegerField(primary_key=True)
    last = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"feed of team {self.team_id}"


class StoredResponse(models.Model):
    """A response of the Responses API that was asked to be stored, from its beginning.

    `body` is the request's JSON as it was sent and `items` the conversation before it in the same
    dialect's items (JSON), both compressed; `answer` is an `inference.fold.Answer` in MessagePack,
    compressed. Of a background response that is streamed `events` has the canonical events, from
    its end on; until then they are in its log (see `inference.transport.log`).
    """

    class Status(models.TextChoices):
        """Where it is in its life, in OpenAI's words."""

        QUEUED = "queued", "Queued"
        IN_PROGRESS = "in_progress", "In progress"
        COMPLETED = "completed", "Completed"
        INCOMPLETE = "incomplete", "Incomplete"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    OPEN = (Status.QUEUED, Status.IN_PROGRESS)

    id = models.UUIDField(primary_key=True)
    team_id = models.BigIntegerField()
    key_id = models.UUIDField()
    model = models.CharField(max_length=200)
    lane = models.CharField(max_length=20)
    background = models.BooleanField(default=False)
    streamed = models.BooleanField(default=False)
    previous_id = models.UUIDField(null=True)
    stream = models.ForeignKey(ResponseStream, on_delete=models.SET_NULL, null=True)
    custom_id = models.CharField(max_length=512, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    deadline_at = models.DateTimeField()
    expires_at = models.DateTimeField(help_text="When it is forgotten.")
    body = models.BinaryField(default=b"")
    items = models.BinaryField(default=b"")
    # How it went.
    status = models.CharField(max_length=20, choices=Status, default=Status.QUEUED)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    answer = models.BinaryField(default=b"")
    events = models.BinaryField(default=b"")
    error_code = models.CharField(max_length=50, blank=True)
    error_message = models.CharField(max_length=2000, blank=True)
    cost_micros = models.BigIntegerField(null=True)
    number = models.BigIntegerField(null=True, help_text="Its place in its team's feed.")

    class Meta:
        """Listed newest first, each team its own."""

        ordering = ["-created_at", "-id"]
        verbose_name = "response"
        indexes = [
            models.Index(fields=["team_id", "-created_at", "-id"], name="response_team"),
            models.Index(
                fields=["stream", "-created_at", "-id"],
                condition=Q(stream__isnull=False),
                name="response_stream",
            ),
            models.Index(
                fields=["deadline_at"],
                condition=Q(status__in=["queued", "in_progress"]),
                name="response_open",
            ),
            models.Index(fields=["expires_at"], name="response_expiry"),
            models.Index(
                fields=["team_id", "stream", "number"],
                condition=Q(number__isnull=False),
                name="response_feed",
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["team_id", "number"], name="response_number")
        ]

    def __str__(self) -> str:
        return str(self.id)
