"""Prices, accounts and the ledger. Amounts are whole micro-units of the currency, never floats."""

from __future__ import annotations

from django.contrib.postgres.indexes import BrinIndex
from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

# A million of the currency for a million tokens: anything beyond is a slip of the unit.
_DEAREST = 10**12


def _factor() -> models.PositiveIntegerField[int, int]:
    return models.PositiveIntegerField(default=500, validators=[MaxValueValidator(10_000)])


def _rate(name: str) -> models.PositiveBigIntegerField[int, int]:
    return models.PositiveBigIntegerField(name, validators=[MaxValueValidator(_DEAREST)])


class Price(models.Model):
    """What a model costs from a moment on, in micro-units for a million tokens.

    3.00 of the currency for a million tokens is 3,000,000. A request is priced by the version in
    force when it was admitted. The factors, in thousandths, apply to the slower lanes.
    """

    model = models.CharField(
        max_length=200,
        validators=[RegexValidator(r"^[A-Za-z0-9][A-Za-z0-9._/:-]*$")],
        help_text="The model's id in the catalogue.",
    )
    effective_from = models.DateTimeField(default=timezone.now)
    input_micros_per_mtok = _rate("input")
    cached_input_micros_per_mtok = _rate("input from the cache")
    cache_write_micros_per_mtok = _rate("input written to the cache")
    output_micros_per_mtok = _rate("output")
    flex_permille = _factor()
    background_permille = _factor()
    batch_permille = _factor()

    class Meta:
        """One version of a model's price begins at one moment."""

        ordering = ["model", "-effective_from"]
        constraints = [
            models.UniqueConstraint(fields=["model", "effective_from"], name="price_version")
        ]

    def __str__(self) -> str:
        return f"{self.model} from {self.effective_from:%Y-%m-%d %H:%M}"


class Account(models.Model):
    """A team's balance: the sum of its ledger's entries, kept beside them under the same lock.

    `entries` is the number of the last entry, and so the version of the balance.
    """

    team_id = models.BigIntegerField(primary_key=True)
    balance_micros = models.BigIntegerField(default=0)
    entries = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"account of team {self.team_id}"


class LedgerEntry(models.Model):
    """One movement of money. The database refuses to change or delete it (see the migrations).

    `number` counts an account's entries from 1 without a gap, and `balance_after_micros` is the
    balance of the entry before plus `amount_micros`: the database checks both as it is written.
    `reference` makes an entry unique among its kind: a request id, a top-up's nonce.
    """

    class Kind(models.TextChoices):
        """What moved the money."""

        USAGE = "usage", "Usage"
        TOP_UP = "topup", "Top-up"
        ADJUSTMENT = "adjustment", "Adjustment"
        REFUND = "refund", "Refund"

    # Its index is that of `ledger_number`.
    account = models.ForeignKey(
        Account, on_delete=models.PROTECT, related_name="ledger", db_index=False
    )
    number = models.BigIntegerField()
    kind = models.CharField(max_length=20, choices=Kind)
    reference = models.CharField(max_length=200)
    amount_micros = models.BigIntegerField()
    balance_after_micros = models.BigIntegerField()
    created_at = models.DateTimeField(default=timezone.now)
    description = models.CharField(max_length=500, blank=True)
    actor = models.CharField(
        max_length=200, blank=True, help_text="Which operator or key made the entry by hand."
    )
    # What a usage entry was computed from.
    request_id = models.UUIDField(null=True, blank=True, unique=True)
    model = models.CharField(max_length=200, blank=True)
    lane = models.CharField(max_length=20, blank=True)
    price = models.ForeignKey(Price, on_delete=models.PROTECT, null=True, blank=True)
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    cache_written_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        """Listed with the newest first; entries are written in order of time, as BRIN needs."""

        ordering = ["-id"]
        verbose_name_plural = "ledger entries"
        indexes = [
            BrinIndex(fields=["created_at"], autosummarize=True, name="ledger_time"),
            models.Index(fields=["kind", "-id"], condition=~Q(kind="usage"), name="ledger_kind"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["account", "number"], name="ledger_number"),
            models.UniqueConstraint(
                fields=["account", "kind", "reference"], name="ledger_reference"
            ),
            models.CheckConstraint(
                condition=Q(kind="usage", request_id__isnull=False, amount_micros__lte=0)
                | (~Q(kind="usage") & Q(request_id__isnull=True)),
                name="ledger_usage",
            ),
            models.CheckConstraint(
                condition=Q(input_tokens__gte=F("cached_tokens") + F("cache_written_tokens")),
                name="ledger_tokens",
            ),
        ]

    def __str__(self) -> str:
        return f"entry {self.number} of team {self.account_id}: {self.amount_micros}"
