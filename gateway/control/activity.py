"""A team's requests: listed, and one in whole."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.control.owners import key_ids
from gateway.control.queries import ActivityQuery
from gateway.control.shapes import ActivityDetail, ActivityPage, ModelNames
from gateway.control.view import ControlView, read_query
from gateway.models import Team
from gateway.request_ids import parse_request_id
from inference.errors import ErrorCode, TandemError
from jobs.models import RequestRecord
from jobs.reports import (
    ActivityFilter,
    KeptBody,
    billed_price,
    find_request,
    kept_body,
    models_of,
    page_of_requests,
)


class ActivityView(ControlView):
    """`GET /control/v1/activity`."""

    @extend_schema(
        operation_id="listActivity",
        summary="List requests",
        description="The team's requests, newest first. Only the newest 10,000 of what a filter "
        "finds are counted and paged through; `created_before` reaches older ones.",
        parameters=[ActivityQuery],
        responses=ActivityPage,
    )
    def get(self, request: Request) -> Response:
        """List requests."""
        query = read_query(ActivityQuery, request)
        page, page_size = query.pop("page"), query.pop("page_size")
        owned = key_ids(self.team, query.pop("key_id", None), query.pop("user_id", None))
        found = page_of_requests(
            ActivityFilter(team_id=self.team.id, key_ids=owned, **query), page, page_size
        )
        answer = {
            "items": found.items,
            "page": page,
            "page_size": page_size,
            "total": found.total,
            "total_is_capped": found.total_is_capped,
        }
        return Response(ActivityPage(answer).data)


class ActivityModelsView(ControlView):
    """`GET /control/v1/activity/models`."""

    @extend_schema(
        operation_id="listActivityModels",
        summary="List the models that were called",
        responses=ModelNames,
    )
    def get(self, request: Request) -> Response:
        """List models."""
        return Response(ModelNames({"items": models_of(self.team.id)}).data)


class ActivityDetailView(ControlView):
    """`GET /control/v1/activity/{request_id}`."""

    @extend_schema(
        operation_id="getActivity",
        summary="Get one request",
        description="By its id as the answer, its `request-id` header or the list has it: with or "
        "without `msg_`, `req_`, `resp_` or `chatcmpl-`. `body_json` and `result_json` are null "
        "for teams with zero data retention, for bodies too large to keep, and after the time "
        "that this install keeps them.",
        responses=ActivityDetail,
    )
    def get(self, request: Request, request_id: str) -> Response:
        """Get one request."""
        parsed = parse_request_id(request_id)
        record = parsed and find_request(self.team.id, parsed)
        if not record:
            raise TandemError(ErrorCode.NOT_FOUND, f"there is no request '{request_id}'")
        kept = kept_body(record.id) if _may_tell(self.team, record) else KeptBody()
        context = {"kept": kept, "price": billed_price(record.id)}
        return Response(ActivityDetail(record, context=context).data)


def _may_tell(team: Team, record: RequestRecord) -> bool:
    """Whether bodies may be shown: what is over its time may not have been deleted yet."""
    kept_for = timedelta(days=settings.TANDEM.BODY_RETENTION_DAYS)
    return not team.zero_data_retention and record.created_at > timezone.now() - kept_for
