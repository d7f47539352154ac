"""The audit trail: one row for each request, what it said, and the seals over the rows."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

# The order of one team's requests. Nothing here is ever null: saying where nulls go keeps
# PostgreSQL from walking everybody's requests (`request_newest`) in search of those of a team that
# has not asked for months; only indexes that begin with the team have this order.
NEWEST_OF_TEAM = (F("created_at").desc(nulls_last=True), F("id").desc(nulls_last=True))


class RequestRecord(models.Model):
    """One request from admission to end, put together from the records of those who served it.

    A row is *settled* once nothing more is expected of it, and *sealed* some time after; the
    database refuses to change or delete a sealed row (see the migrations). `input_tokens` are all
    of the prompt, `cached_tokens` and `cache_written_tokens` parts of it; `thinking_tokens` are a
    part of `output_tokens`. `cost_micros` None: not billed (yet).

    `model` is the one that answered, or was to; `requested_model` the one that was asked for, where
    that could not and its fallback got the request.
    """

    class Status(models.TextChoices):
        """Where a request is in its life."""

        RUNNING = "running", "Running"
        COMPLETED = "completed", "Completed"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    class Type(models.TextChoices):
        """How it was asked, in the words of the control API."""

        STANDALONE = "standalone", "Standalone"
        BATCH = "batch", "Batch"
        STREAM = "stream", "Stream"

    id = models.UUIDField(primary_key=True)
    created_at = models.DateTimeField("admitted")
    deadline_at = models.DateTimeField(null=True)
    # Who.
    team_id = models.BigIntegerField()
    team_name = models.CharField(max_length=200, blank=True)
    key_id = models.UUIDField(null=True)
    key_name = models.CharField(max_length=200, blank=True)
    client = models.CharField(max_length=200, blank=True)
    address = models.CharField(max_length=64, blank=True)
    trace_id = models.CharField(max_length=64, blank=True)
    session_id = models.CharField(max_length=100, blank=True)
    # What.
    type = models.CharField(max_length=20, choices=Type, default=Type.STANDALONE)
    batch_id = models.UUIDField(null=True)
    stream_id = models.UUIDField(null=True)
    custom_id = models.CharField(max_length=512, blank=True)
    dialect = models.CharField(max_length=20, blank=True)
    lane = models.CharField(max_length=20, blank=True)
    model = models.CharField(max_length=200)
    requested_model = models.CharField(max_length=200, blank=True)
    streamed = models.BooleanField(default=False)
    max_tokens = models.PositiveBigIntegerField(default=0)
    ignored_fields = ArrayField(models.CharField(max_length=200), default=list)
    body_bytes = models.PositiveBigIntegerField(default=0)
    body_digest = models.BinaryField(max_length=32, default=b"")
    # How it went.
    engine_id = models.UUIDField(null=True)
    engine_host = models.CharField(max_length=255, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    taken_at = models.DateTimeField("taken by the engine", null=True)
    first_token_at = models.DateTimeField(null=True)
    engine_ended_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField("answer ended", null=True)
    status = models.CharField(max_length=20, choices=Status, default=Status.RUNNING)
    ending = models.CharField(max_length=20, blank=True)
    detail = models.CharField(max_length=50, blank=True)
    error = models.CharField(max_length=2000, blank=True)
    answer_digest = models.BinaryField(max_length=32, default=b"")
    # What it used.
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    cache_written_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    thinking_tokens = models.PositiveBigIntegerField(default=0)
    cost_micros = models.BigIntegerField(null=True)
    settled_at = models.DateTimeField(null=True)
    seal = models.ForeignKey(
        "AuditSeal", on_delete=models.PROTECT, null=True, related_name="records", db_index=False
    )

    class Meta:
        """Indexed for the lists that people look at, newest first, and for what is not yet done."""

        ordering = ["-created_at", "-id"]
        verbose_name = "request"
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="request_newest"),
            models.Index(
                fields=["status", "-created_at", "-id"],
                condition=~Q(status="completed"),
                name="request_unusual",
            ),
            models.Index("team_id", *NEWEST_OF_TEAM, name="request_team"),
            models.Index("team_id", "type", *NEWEST_OF_TEAM, name="request_team_type"),
            models.Index("team_id", "model", *NEWEST_OF_TEAM, name="request_team_model"),
            models.Index(
                *("team_id", "status", *NEWEST_OF_TEAM),
                condition=~Q(status="completed"),
                name="request_team_unusual",
            ),
            models.Index("team_id", "key_id", *NEWEST_OF_TEAM, name="request_team_key"),
            models.Index(
                fields=["batch_id", "id"], condition=Q(batch_id__isnull=False), name="request_batch"
            ),
            models.Index(
                fields=["created_at"], condition=Q(settled_at__isnull=True), name="request_open"
            ),
            models.Index(
                fields=["settled_at", "id"],
                condition=Q(seal__isnull=True),
                name="request_unsealed",
            ),
            models.Index(fields=["seal", "id"], name="request_seal"),
        ]

    def __str__(self) -> str:
        return str(self.id)


class RequestBody(models.Model):
    """What a request said and what was answered, compressed, for as long as it is kept.

    Both are zlib streams: `body` of the request's own JSON, `answer` of the canonical parts in
    MessagePack (see `inference.fold`). The record keeps the SHA-256 of each.
    """

    record_id = models.UUIDField(primary_key=True)
    created_at = models.DateTimeField(db_index=True)
    body = models.BinaryField(null=True)
    answer = models.BinaryField(null=True)

    def __str__(self) -> str:
        return str(self.record_id)


class UsageDay(models.Model):
    """A day's usage of one team, key, model and lane, added up as the ledger's entries are made."""

    team_id = models.BigIntegerField()
    key_id = models.UUIDField()
    day = models.DateField()
    model = models.CharField(max_length=200)
    lane = models.CharField(max_length=20)
    requests = models.PositiveBigIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    cache_written_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cost_micros = models.PositiveBigIntegerField(default=0)

    class Meta:
        """One row for each combination; the constraint's index serves a team's reports."""

        ordering = ["-day"]
        verbose_name_plural = "usage by day"
        indexes = [models.Index(fields=["day"], name="usage_of_all")]
        constraints = [
            models.UniqueConstraint(
                fields=["team_id", "day", "model", "lane", "key_id"], name="usage_day"
            )
        ]

    def __str__(self) -> str:
        return f"team {self.team_id} on {self.day}: {self.model}"


class KeyUse(models.Model):
    """When a key was last used."""

    key_id = models.UUIDField(primary_key=True)
    last_used_at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.key_id)


class AuditSeal(models.Model):
    """A link of the chain over settled rows: what they say, and the link before, signed.

    `leaves` has the id (16 bytes) and the SHA-256 (32 bytes) of each row, in the order of the ids;
    `rows_digest` is the SHA-256 of that; `digest` the HMAC, by the install's secret key, over the
    link before and this one (see `jobs.seals`). When retention removes the rows, the leaves go
    with them and `pruning_digest` says, signed, that it was retention; the chain still holds.
    """

    number = models.BigIntegerField(primary_key=True)
    created_at = models.DateTimeField()
    rows = models.PositiveIntegerField()
    leaves = models.BinaryField()
    rows_digest = models.BinaryField(max_length=32)
    digest = models.BinaryField(max_length=32)
    pruned_at = models.DateTimeField(null=True)
    pruning_digest = models.BinaryField(max_length=32, default=b"")

    class Meta:
        """Listed with the newest first; indexed for retention, which takes the oldest."""

        ordering = ["-number"]
        indexes = [
            models.Index(
                fields=["number"], condition=Q(pruned_at__isnull=True), name="seal_unpruned"
            )
        ]

    def __str__(self) -> str:
        return f"seal {self.number}"
