"""What the control API is asked: the query strings and bodies that it takes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from gateway.models import Scope
from jobs.amounts import MAX_MICROS
from jobs.models import RequestRecord
from jobs.quota.claims import MAX_PER_MINUTE

_NAME_LENGTH = 200


class Strict(serializers.Serializer[Any]):
    """A body: a field with a name that nobody knows is an error, not a wish that is forgotten."""

    def to_internal_value(self, data: Any) -> Any:
        """Refuse unknown fields, then check the others."""
        if isinstance(data, dict) and (unknown := sorted(set(data) - set(self.fields))):
            raise serializers.ValidationError(
                {str(name): ["there is no such field"] for name in unknown}
            )
        return super().to_internal_value(data)


class ActivityQuery(serializers.Serializer[Any]):
    """Which requests, and which page of them."""

    page = serializers.IntegerField(default=1, min_value=1, help_text="Counted from 1.")
    page_size = serializers.IntegerField(default=25, min_value=1, max_value=100)
    type = serializers.ChoiceField(RequestRecord.Type.choices, required=False)
    status = serializers.ChoiceField(
        [("pending", "Pending"), *RequestRecord.Status.choices], required=False
    )
    model = serializers.CharField(
        max_length=_NAME_LENGTH, required=False, help_text="A model's id in the catalogue."
    )
    created_after = serializers.DateTimeField(
        required=False, help_text="The first moment that counts, in ISO 8601."
    )
    created_before = serializers.DateTimeField(
        required=False, help_text="The first moment that no longer counts."
    )
    key_id = serializers.UUIDField(required=False, help_text="Requests of one API key.")
    user_id = serializers.CharField(
        max_length=_NAME_LENGTH, required=False, help_text="Requests of the keys of this owner."
    )


class UsageQuery(serializers.Serializer[Any]):
    """Which days, keys and models."""

    days = serializers.IntegerField(
        default=30, min_value=1, max_value=365, help_text="Days in UTC up to and with today."
    )
    model = serializers.CharField(max_length=_NAME_LENGTH, required=False)
    key_id = serializers.UUIDField(required=False)
    user_id = serializers.CharField(
        max_length=_NAME_LENGTH, required=False, help_text="The keys of this owner."
    )


class BillingQuery(serializers.Serializer[Any]):
    """Which days."""

    days = serializers.IntegerField(default=30, min_value=1, max_value=365)


class TransactionsQuery(serializers.Serializer[Any]):
    """Which part of the ledger."""

    limit = serializers.IntegerField(default=25, min_value=1, max_value=100)
    starting_after = serializers.IntegerField(
        min_value=1, required=False, help_text="The `next_starting_after` of the page before."
    )


class TopUpQuery(serializers.Serializer[Any]):
    """What makes a top-up one of a kind."""

    nonce = serializers.CharField(
        max_length=100, help_text="The same top-up sent again has the same nonce."
    )


class TopUpBody(Strict):
    """How much is to be added."""

    amount_micros = serializers.IntegerField(min_value=1, max_value=MAX_MICROS)
    description = serializers.CharField(max_length=500, default="", allow_blank=True)


class KeysQuery(serializers.Serializer[Any]):
    """Which page of the keys."""

    page = serializers.IntegerField(default=1, min_value=1, max_value=100)
    page_size = serializers.IntegerField(default=25, min_value=1, max_value=100)


class LimitsBody(Strict):
    """What a key may use in a minute and at once; null: no limit but the team's."""

    requests_per_minute = serializers.IntegerField(
        min_value=0, max_value=2**31 - 1, allow_null=True, required=False
    )
    input_tokens_per_minute = serializers.IntegerField(
        min_value=0, max_value=MAX_PER_MINUTE, allow_null=True, required=False
    )
    output_tokens_per_minute = serializers.IntegerField(
        min_value=0, max_value=MAX_PER_MINUTE, allow_null=True, required=False
    )
    max_concurrent = serializers.IntegerField(
        min_value=1, max_value=2**31 - 1, allow_null=True, required=False
    )


class KeyBody(Strict):
    """A key to be made."""

    name = serializers.CharField(max_length=_NAME_LENGTH)
    owner = serializers.CharField(max_length=_NAME_LENGTH, default="", allow_blank=True)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(Scope.choices),
        allow_empty=False,
        max_length=len(Scope),
        required=False,
        help_text="Left out: inference, batches and read.",
    )
    allowed_models = serializers.ListField(
        child=serializers.CharField(max_length=_NAME_LENGTH),
        default=list,
        max_length=1000,
        help_text="Ids of the catalogue. Empty: every model.",
    )
    expires_at = serializers.DateTimeField(default=None, allow_null=True)
    limits = LimitsBody(required=False)


class TeamBody(Strict):
    """What a team may change of itself."""

    zero_data_retention_enabled = serializers.BooleanField(required=True)
