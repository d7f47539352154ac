"""The team of the key that calls."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.control.queries import TeamBody
from gateway.control.shapes import TeamInfo
from gateway.control.view import ControlView, checked
from gateway.teams import set_zero_data_retention


class TeamView(ControlView):
    """`/control/v1/teams/me`."""

    @extend_schema(operation_id="getTeam", summary="Get the team", responses=TeamInfo)
    def get(self, request: Request) -> Response:
        """Get the team."""
        return Response(TeamInfo(self.team).data)

    @extend_schema(
        operation_id="updateTeam",
        summary="Change the team",
        description="With zero data retention, nothing that requests say or that is answered is "
        "kept from now on, and what was kept before is no longer shown.",
        request=TeamBody,
        responses=TeamInfo,
    )
    def patch(self, request: Request) -> Response:
        """Change the team."""
        body = checked(TeamBody(data=request.data))
        set_zero_data_retention(self.team, body["zero_data_retention_enabled"])
        return Response(TeamInfo(self.team).data)
