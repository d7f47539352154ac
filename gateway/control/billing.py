"""A team's money: what it spent, what is left, and every movement of it."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.control.queries import BillingQuery, TopUpBody, TopUpQuery, TransactionsQuery
from gateway.control.shapes import BillingSummary, TopUp, Transactions
from gateway.control.usage import last_days
from gateway.control.view import ControlView, checked, read_query
from gateway.credit import top_up
from jobs.reports import (
    UsageFilter,
    balance_micros,
    entries_of,
    prices_in_force,
    total_usage,
    usage_by_model,
)


class BillingSummaryView(ControlView):
    """`GET /control/v1/billing/summary`."""

    @extend_schema(
        operation_id="getBillingSummary",
        summary="Get costs and credit",
        parameters=[BillingQuery],
        responses=BillingSummary,
    )
    def get(self, request: Request) -> Response:
        """Get what was spent, on which models, and what credit is left."""
        days: int = read_query(BillingQuery, request)["days"]
        first, last = last_days(days)
        by_model = usage_by_model(UsageFilter(team_id=self.team.id, first=first, last=last))
        totals = total_usage(by_model)
        answer = {
            "days": days,
            "prepaid": self.team.prepaid,
            "credit_balance_micros": balance_micros(self.team.id),
            "estimated_cost_micros": totals.cost_micros,
            "totals": totals,
            "by_model": by_model,
        }
        prices = prices_in_force((each.model for each in by_model), timezone.now())
        return Response(BillingSummary(answer, context={"prices": prices}).data)


class TransactionsView(ControlView):
    """`GET /control/v1/billing/transactions`."""

    @extend_schema(
        operation_id="listTransactions",
        summary="List the ledger's entries",
        description="Newest first. `starting_after` takes the `next_starting_after` of the page "
        "before.",
        parameters=[TransactionsQuery],
        responses=Transactions,
    )
    def get(self, request: Request) -> Response:
        """List entries."""
        query = read_query(TransactionsQuery, request)
        limit: int = query["limit"]
        found = entries_of(self.team.id, limit + 1, query.get("starting_after"))
        items = found[:limit]
        after = items[-1].number if len(found) > limit else None
        return Response(Transactions({"items": items, "next_starting_after": after}).data)


class TopUpsView(ControlView):
    """`POST /control/v1/billing/topups`."""

    @extend_schema(
        operation_id="createTopUp",
        summary="Add credit",
        description="Once for each nonce: the same again answers with the first entry, so that a "
        "top-up may be sent again when its answer was lost. Another amount under the same nonce "
        "is refused.",
        parameters=[TopUpQuery],
        request=TopUpBody,
        responses={201: TopUp},
    )
    def post(self, request: Request) -> Response:
        """Add credit."""
        nonce: str = read_query(TopUpQuery, request)["nonce"]
        body = checked(TopUpBody(data=request.data))
        entry = top_up(
            self.team.id,
            body["amount_micros"],
            nonce=nonce,
            actor=f"key {self.key.prefix}",
            description=body["description"],
        )
        return Response(TopUp(entry).data, status.HTTP_201_CREATED)
