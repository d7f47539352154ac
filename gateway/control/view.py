"""The base of every view of the control API: who may call, what goes in, how errors come out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import IO, Any, TypeVar

import uuid_utils
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from rest_framework import exceptions
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from gateway.control.authentication import HasScope, KeyAuthentication
from gateway.models import ApiKey, Team
from gateway.views import error_response
from inference.errors import ErrorCode, TandemError

logger = logging.getLogger(__name__)

_CODES: list[tuple[type[Exception], ErrorCode]] = [
    (exceptions.MethodNotAllowed, ErrorCode.METHOD_NOT_ALLOWED),
    (exceptions.NotFound, ErrorCode.NOT_FOUND),
    (exceptions.APIException, ErrorCode.INVALID_REQUEST),
]


class JsonAlways(DefaultContentNegotiation):
    """JSON, whatever the client says that it accepts: browsers and `curl` name anything."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """Return the one renderer that there is."""
        return renderers[0], renderers[0].media_type


class BoundedJson(JSONParser):
    """JSON; what is nested too deep to be read is the caller's fault like all other bad JSON."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the body. Raises DRF's `ParseError`."""
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise exceptions.ParseError("JSON parse error - it is nested too deep") from None


class ControlView(APIView):
    """Answers a team's own key, in JSON, and errors in the envelope of the whole API."""

    authentication_classes = [KeyAuthentication]
    permission_classes = [HasScope]
    parser_classes = [BoundedJson]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = JsonAlways
    http_method_names = ["get", "head", "post", "patch", "delete"]

    @property
    def key(self) -> ApiKey:
        """The key that calls."""
        assert isinstance(self.request.auth, ApiKey)
        return self.request.auth

    @property
    def team(self) -> Team:
        """The key's team: the only one whose things are shown or changed."""
        return self.key.team

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """Give the request its id."""
        super().setup(request, *args, **kwargs)
        self.request_id = f"req_{uuid_utils.uuid7()}"

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], HttpResponse | None]:
        """Answer with the envelope; None leaves a fault of our own to Django."""
        return self._answer_error

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        """Add the request's id, and keep usage and keys out of every cache."""
        final = super().finalize_response(request, response, *args, **kwargs)
        final["request-id"] = self.request_id
        final["cache-control"] = "no-store"
        return final

    def _answer_error(self, exception: Exception, context: dict[str, Any]) -> HttpResponse | None:
        error = _as_error(exception)
        return None if error is None else error_response(error, self.request_id)


def _as_error(exception: Exception) -> TandemError | None:
    if isinstance(exception, TandemError):
        return exception
    if isinstance(exception, OperationalError | InterfaceError):
        logger.exception("the database did not answer the control API")
        return TandemError(
            ErrorCode.UNAVAILABLE, "the database did not answer; try again", retry_after_s=1
        )
    if isinstance(exception, Http404):
        return TandemError(ErrorCode.NOT_FOUND, str(exception))
    for kind, code in _CODES:
        if isinstance(exception, kind):
            return TandemError(code, _message(exception))
    return None


def _message(exception: Exception) -> str:
    if isinstance(exception, exceptions.APIException):
        return "; ".join(_problems(exception.detail))
    return str(exception)


def _problems(detail: Any, path: str = "") -> list[str]:
    """Flatten what serializers found: `limits.requests_per_minute: ...`, one line for each."""
    if isinstance(detail, dict):
        return [
            line
            for name, inner in detail.items()
            for line in _problems(inner, path if name == "non_field_errors" else f"{path}.{name}")
        ]
    if isinstance(detail, list):
        return [line for inner in detail for line in _problems(inner, path)]
    return [f"{path.removeprefix('.')}: {detail}" if path else str(detail)]


S = TypeVar("S", bound=Serializer[Any])


def checked(serializer: S) -> dict[str, Any]:
    """Return what the serializer made of its input. Raises DRF's `ValidationError`."""
    serializer.is_valid(raise_exception=True)
    data: dict[str, Any] = serializer.validated_data
    return data


def read_query(kind: type[Serializer[Any]], request: Request) -> dict[str, Any]:
    """Read the query string. An empty value is as good as none, and unknown names are ignored."""
    return checked(
        kind(data={name: value for name, value in request.query_params.items() if value})
    )
