"""What a team used: by day, and in sum."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.control.owners import key_ids
from gateway.control.queries import UsageQuery
from gateway.control.shapes import UsageDaily, UsageSummary
from gateway.control.view import ControlView, read_query
from jobs.reports import UsageFilter, total_usage, usage_by_day, usage_by_model


class UsageView(ControlView):
    """What the two reports share: which days, keys and models they are about."""

    def wanted(self, request: Request) -> tuple[int, UsageFilter]:
        """Return the number of days and the filter. Raises DRF's `ValidationError`."""
        query = read_query(UsageQuery, request)
        days: int = query["days"]
        first, last = last_days(days)
        return days, UsageFilter(
            team_id=self.team.id,
            first=first,
            last=last,
            model=query.get("model"),
            key_ids=key_ids(self.team, query.get("key_id"), query.get("user_id")),
        )


class UsageDailyView(UsageView):
    """`GET /control/v1/usage/daily`."""

    @extend_schema(
        operation_id="getDailyUsage",
        summary="Get usage by day",
        description="Every day in UTC up to and with today, oldest first. Requests count on the "
        "day on which they were billed.",
        parameters=[UsageQuery],
        responses=UsageDaily,
    )
    def get(self, request: Request) -> Response:
        """Get usage by day."""
        days, wanted = self.wanted(request)
        return Response(UsageDaily({"days": days, "items": usage_by_day(wanted)}).data)


class UsageSummaryView(UsageView):
    """`GET /control/v1/usage/summary`."""

    @extend_schema(
        operation_id="getUsageSummary",
        summary="Get usage in sum",
        parameters=[UsageQuery],
        responses=UsageSummary,
    )
    def get(self, request: Request) -> Response:
        """Get usage in sum, and by model."""
        days, wanted = self.wanted(request)
        by_model = usage_by_model(wanted)
        answer = {"days": days, "totals": total_usage(by_model), "by_model": by_model}
        return Response(UsageSummary(answer).data)


def last_days(days: int) -> tuple[date, date]:
    """Return the first and the last of so many days in UTC up to and with today."""
    today = datetime.now(UTC).date()
    return today - timedelta(days=days - 1), today
