"""What the control API answers: one class for each shape, which its OpenAPI document shows too.

Amounts are whole micro-units of the currency, moments are ISO 8601 in UTC. The names are those of
sference's API where it has them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from gateway.control.answers import JsonObject, render_body, render_error, render_result
from gateway.models import ApiKey, Scope
from inference.request import Lane
from jobs.models import LedgerEntry, RequestRecord
from jobs.pricing import PriceVersion
from jobs.reports import ModelUsage

_STATUSES = [("pending", "Pending"), *RequestRecord.Status.choices]


def _absent() -> serializers.CharField:
    """What sference's API tells of, and there is none of here: always null."""
    return serializers.CharField(default=None, allow_null=True)


class Shape(serializers.Serializer[Any]):
    """An answer: it is only ever written."""


class ActivityItem(Shape):
    """A request, as lists show it. `cost_micros` null: not billed, or not yet."""

    id = serializers.UUIDField()
    created_at = serializers.DateTimeField()
    completed_at = serializers.SerializerMethodField()
    status = serializers.ChoiceField(_STATUSES)
    model = serializers.CharField()
    requested_model = serializers.SerializerMethodField()
    type = serializers.ChoiceField(RequestRecord.Type.choices)
    dialect = serializers.CharField()
    service_tier = serializers.CharField(source="lane")
    stream = serializers.BooleanField(source="streamed")
    custom_id = serializers.SerializerMethodField()
    batch_id = serializers.UUIDField(allow_null=True)
    stream_id = serializers.UUIDField(allow_null=True)
    key_id = serializers.UUIDField(allow_null=True)
    key_name = serializers.CharField()
    prompt_tokens = serializers.IntegerField(source="input_tokens")
    cached_prompt_tokens = serializers.IntegerField(source="cached_tokens")
    cache_write_prompt_tokens = serializers.IntegerField(source="cache_written_tokens")
    completion_tokens = serializers.IntegerField(source="output_tokens")
    reasoning_tokens = serializers.IntegerField(source="thinking_tokens")
    total_tokens = serializers.SerializerMethodField()
    cost_micros = serializers.IntegerField(allow_null=True)
    error = serializers.SerializerMethodField()

    def get_completed_at(self, record: RequestRecord) -> datetime | None:
        """When the answer ended."""
        if record.status == RequestRecord.Status.RUNNING:
            return None
        return record.closed_at or record.engine_ended_at or record.settled_at

    def get_requested_model(self, record: RequestRecord) -> str | None:
        """The model that was asked for, where its fallback got the request."""
        return record.requested_model or None

    def get_custom_id(self, record: RequestRecord) -> str | None:
        """What the caller named it."""
        return record.custom_id or None

    def get_total_tokens(self, record: RequestRecord) -> int:
        """Prompt and answer together."""
        return record.input_tokens + record.output_tokens

    def get_error(self, record: RequestRecord) -> str | None:
        """What went wrong, in a sentence."""
        return record.error or None


class PriceTerms(Shape):
    """The price that a cost was computed from: micro-units for a million tokens."""

    effective_from = serializers.DateTimeField()
    input_micros_per_mtok = serializers.IntegerField()
    cached_input_micros_per_mtok = serializers.IntegerField()
    cache_write_micros_per_mtok = serializers.IntegerField()
    output_micros_per_mtok = serializers.IntegerField()
    factor_permille = serializers.SerializerMethodField()

    def get_factor_permille(self, price: PriceVersion) -> int:
        """The service tier's factor: 500 is half."""
        return price.permille(Lane(self.context["lane"]))


class ActivityDetail(ActivityItem):
    """A request in whole. Bodies are null where they are not kept, or no longer."""

    deadline_at = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(source="taken_at", allow_null=True)
    first_token_at = serializers.DateTimeField(allow_null=True)
    engine_ended_at = serializers.DateTimeField(allow_null=True)
    settled_at = serializers.DateTimeField(allow_null=True)
    engine_id = serializers.UUIDField(allow_null=True)
    attempts = serializers.IntegerField()
    ending = serializers.CharField()
    detail = serializers.CharField()
    max_tokens = serializers.IntegerField()
    ignored_fields = serializers.ListField(child=serializers.CharField())
    client = serializers.CharField()
    address = serializers.CharField()
    trace_id = serializers.CharField()
    session_id = serializers.CharField()
    price = serializers.SerializerMethodField()
    body_json = serializers.SerializerMethodField()
    result_json = serializers.SerializerMethodField()
    error_json = serializers.SerializerMethodField()

    @extend_schema_field(PriceTerms(allow_null=True))
    def get_price(self, record: RequestRecord) -> Any:
        """The version of the price that the request was billed by; null: it was not, or free."""
        price: PriceVersion | None = self.context["price"]
        return price and PriceTerms(price, context={"lane": record.lane}).data

    def get_body_json(self, record: RequestRecord) -> JsonObject | None:
        """What was sent."""
        return render_body(self.context["kept"].body)

    def get_result_json(self, record: RequestRecord) -> JsonObject | None:
        """What was answered, as one message, streamed or not."""
        return render_result(record, self.context["kept"].answer)

    def get_error_json(self, record: RequestRecord) -> JsonObject | None:
        """The error that was answered."""
        return render_error(record)


class ActivityPage(Shape):
    """A page of requests. `total` is exact up to 10,000 and then stays there."""

    items = ActivityItem(many=True)
    page = serializers.IntegerField()
    page_size = serializers.IntegerField()
    total = serializers.IntegerField()
    total_is_capped = serializers.BooleanField()


class ModelNames(Shape):
    """The models that the team's requests went to."""

    items = serializers.ListField(child=serializers.CharField())


class UsageCounts(Shape):
    """Requests that an engine took, and their tokens."""

    requests = serializers.IntegerField()
    prompt_tokens = serializers.IntegerField(source="input_tokens")
    cached_prompt_tokens = serializers.IntegerField(source="cached_tokens")
    cache_write_prompt_tokens = serializers.IntegerField(source="cache_written_tokens")
    completion_tokens = serializers.IntegerField(source="output_tokens")
    total_tokens = serializers.IntegerField()
    cost_micros = serializers.IntegerField()


class UsageOfDay(UsageCounts):
    """A day in UTC."""

    date = serializers.DateField(source="day")


class UsageOfModel(UsageCounts):
    """A model in one service tier."""

    model = serializers.CharField()
    service_tier = serializers.CharField(source="lane")


class UsageDaily(Shape):
    """Every day asked for, oldest first."""

    days = serializers.IntegerField()
    items = UsageOfDay(many=True)


class UsageSummary(Shape):
    """The days asked for in one."""

    days = serializers.IntegerField()
    totals = UsageCounts()
    by_model = UsageOfModel(many=True)


class BillOfModel(UsageOfModel):
    """A model in one service tier, with the price that is in force now; null: it is free."""

    price = serializers.SerializerMethodField()

    @extend_schema_field(PriceTerms(allow_null=True))
    def get_price(self, bill: ModelUsage) -> Any:
        """The price, from the context."""
        price: PriceVersion | None = self.context["prices"].get(bill.model)
        return price and PriceTerms(price, context={"lane": bill.lane}).data


class BillingSummary(Shape):
    """What the days asked for cost, and what credit is left."""

    days = serializers.IntegerField()
    prepaid = serializers.BooleanField()
    credit_balance_micros = serializers.IntegerField()
    estimated_cost_micros = serializers.IntegerField()
    totals = UsageCounts()
    by_model = BillOfModel(many=True)


class Transaction(Shape):
    """An entry of the team's ledger; `id` counts them from 1."""

    id = serializers.IntegerField(source="number")
    created_at = serializers.DateTimeField()
    type = serializers.ChoiceField(LedgerEntry.Kind.choices, source="kind")
    amount_micros = serializers.IntegerField()
    balance_after_micros = serializers.IntegerField()
    description = serializers.CharField()
    request_id = serializers.UUIDField(allow_null=True)
    external_provider = _absent()
    external_payment_id = _absent()


class TopUp(Transaction):
    """A top-up. It counts at once, so that there is never anything to check out."""

    checkout_url = _absent()


class Transactions(Shape):
    """Entries, newest first; `next_starting_after` null: there are no older ones."""

    items = Transaction(many=True)
    next_starting_after = serializers.IntegerField(allow_null=True)


class LimitsInfo(Shape):
    """Null: no limit."""

    requests_per_minute = serializers.IntegerField(allow_null=True)
    input_tokens_per_minute = serializers.IntegerField(allow_null=True)
    output_tokens_per_minute = serializers.IntegerField(allow_null=True)
    max_concurrent = serializers.IntegerField(allow_null=True)


class KeyInfo(Shape):
    """A key; its text is nowhere but in the answer that made it."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField()
    owner = serializers.CharField()
    scopes = serializers.ListField(child=serializers.ChoiceField(Scope.choices))
    allowed_models = serializers.ListField(child=serializers.CharField())
    limits = LimitsInfo(source="*")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.SerializerMethodField()
    revoked_at = serializers.DateTimeField(allow_null=True)

    def get_last_used_at(self, key: ApiKey) -> datetime | None:
        """When it last called a model."""
        moments: dict[UUID, datetime] = self.context.get("last_used", {})
        return moments.get(key.id)


class NewKey(KeyInfo):
    """A key just made, with its text: this once."""

    plaintext = serializers.SerializerMethodField()

    def get_plaintext(self, key: ApiKey) -> str:
        """The key's text, from the context."""
        plaintext: str = self.context["plaintext"]
        return plaintext


class KeyPage(Shape):
    """A page of the team's keys, newest first, revoked ones too."""

    items = KeyInfo(many=True)
    page = serializers.IntegerField()
    page_size = serializers.IntegerField()
    total = serializers.IntegerField()


class TeamInfo(Shape):
    """The key's team. Caps are in micro-units; null: none."""

    id = serializers.CharField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    zero_data_retention_enabled = serializers.BooleanField(source="zero_data_retention")
    prepaid = serializers.BooleanField()
    daily_spend_cap_micros = serializers.IntegerField(allow_null=True)
    monthly_spend_cap_micros = serializers.IntegerField(allow_null=True)
    limits = LimitsInfo(source="*")
