"""The control API's OpenAPI document."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.control.view import ControlView


class _Conf(NamedTuple):
    """What the generator takes for a module of URLs."""

    urlpatterns: list[URLPattern | URLResolver]


@cache
def document() -> dict[str, Any]:
    """Return the document: the same one in every process of a version."""
    from gateway.control.urls import ROUTES  # which has the view below

    conf = _Conf([path("control/v1/", include(ROUTES))])
    generator = SchemaGenerator(urlconf=conf)  # type: ignore[no-untyped-call]
    built: dict[str, Any] = generator.get_schema(public=True)  # type: ignore[no-untyped-call]
    return built


class DocumentView(ControlView):
    """`GET /control/v1/openapi.json`: for everybody."""

    authentication_classes = []
    permission_classes = []

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        """Return the document."""
        return Response(document())
