"""What requests came to, by the minute in which they ended: what dashboards are made of.

`jobs.recorder.minutes` keeps both tables in the transactions that settle requests; they equal what
a recount of the audit trail's settled rows gives, for as long as `jobs.minutes.KEPT` says.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models


class RequestMinute(models.Model):
    """A minute's requests of one team, model and lane that ended one way.

    `outcome` is `completed`, `cancelled`, or what went wrong, as the trail's `detail` says.
    """

    minute = models.DateTimeField()
    team_id = models.BigIntegerField()
    model = models.CharField(max_length=200)
    lane = models.CharField(max_length=20, blank=True)
    outcome = models.CharField(max_length=50)
    requests = models.BigIntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0)

    class Meta:
        """One row for each combination; the constraint's index finds minutes."""

        ordering = ["-minute"]
        verbose_name_plural = "requests by minute"
        constraints = [
            models.UniqueConstraint(
                fields=["minute", "team_id", "model", "lane", "outcome"], name="request_minute"
            )
        ]

    def __str__(self) -> str:
        return f"{self.requests} requests to {self.model} at {self.minute:%H:%M}"


class LatencyMinute(models.Model):
    """A minute's times of one model in one of the lanes in which somebody waits for the answer.

    Both are histograms (`jobs.latency`): from admission to the first token, and from one token to
    the next, on average over the answer.
    """

    minute = models.DateTimeField()
    model = models.CharField(max_length=200)
    lane = models.CharField(max_length=20)
    first_token = ArrayField(models.IntegerField())
    between_tokens = ArrayField(models.IntegerField())

    class Meta:
        """One row for each combination; the constraint's index finds minutes."""

        ordering = ["-minute"]
        verbose_name_plural = "latency by minute"
        constraints = [
            models.UniqueConstraint(fields=["minute", "model", "lane"], name="latency_minute")
        ]

    def __str__(self) -> str:
        return f"{self.model} at {self.minute:%H:%M}"
