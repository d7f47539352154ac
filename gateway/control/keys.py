"""A team's own API keys: listed, made, revoked."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.control.queries import KeyBody, KeysQuery
from gateway.control.shapes import KeyPage, NewKey
from gateway.control.view import ControlView, checked, read_query
from gateway.keys import issue, list_keys, revoke
from gateway.models import ApiKey, default_scopes
from inference.errors import ErrorCode, TandemError
from jobs.reports import capped_count, last_used


class KeysView(ControlView):
    """`/control/v1/auth/api-keys`."""

    @extend_schema(
        operation_id="listApiKeys",
        summary="List API keys",
        description="The team's keys, newest first, revoked ones too.",
        parameters=[KeysQuery],
        responses=KeyPage,
    )
    def get(self, request: Request) -> Response:
        """List keys."""
        query = read_query(KeysQuery, request)
        page, page_size = query["page"], query["page_size"]
        keys = list_keys().filter(team=self.team)
        start = (page - 1) * page_size
        items = list(keys[start : start + page_size])
        answer = query | {"items": items, "total": capped_count(keys)}
        context = {"last_used": last_used(key.id for key in items)}
        return Response(KeyPage(answer, context=context).data)

    @extend_schema(
        operation_id="createApiKey",
        summary="Make an API key",
        description="`plaintext` is the key: only its hash is stored, it is never shown again.",
        request=KeyBody,
        responses={201: NewKey},
    )
    def post(self, request: Request) -> Response:
        """Make a key."""
        body = checked(KeyBody(data=request.data))
        limits = body.pop("limits", {})
        scopes = body.pop("scopes", None) or default_scopes()
        key = ApiKey(team=self.team, scopes=scopes, **body, **limits)
        context = {"plaintext": issue(key)}
        return Response(NewKey(key, context=context).data, status.HTTP_201_CREATED)


class KeyView(ControlView):
    """`/control/v1/auth/api-keys/{key_id}`."""

    @extend_schema(
        operation_id="revokeApiKey",
        summary="Revoke an API key",
        description="Requests with it are refused from now on. Once more does no harm.",
        responses={204: None},
    )
    def delete(self, request: Request, key_id: UUID) -> Response:
        """Revoke a key."""
        keys = list_keys().filter(team=self.team, pk=key_id)
        if not keys.exists():
            raise TandemError(ErrorCode.NOT_FOUND, f"there is no API key '{key_id}'")
        revoke(keys)
        return Response(status=status.HTTP_204_NO_CONTENT)
