"""The landing page, and the errors of every path that nothing else answers."""

from __future__ import annotations

import uuid_utils
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt

from gateway.errors import ANTHROPIC, ERRORS, error_body, error_headers
from inference.errors import ErrorCode, TandemError


@csrf_exempt  # it changes nothing, and an API client that posts here must be told so as JSON
def landing(request: HttpRequest) -> HttpResponse:
    """Say what answers here and how to call it."""
    if request.method not in ("GET", "HEAD"):
        message = f"{request.method} is not allowed on /; the API is at /v1"
        return error_response(TandemError(ErrorCode.METHOD_NOT_ALLOWED, message))
    return render(
        request,
        "gateway/landing.html",
        {
            "base_url": request.build_absolute_uri("/").rstrip("/"),
            "has_admin": settings.TANDEM.GATEWAY_ROLE != "api",
        },
    )


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer 404: as a page to the admin's people, in the API's envelope to everybody else."""
    if _is_admin(request):
        return defaults.page_not_found(request, exception)
    return error_response(TandemError(ErrorCode.NOT_FOUND, f"{request.path} does not exist"))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer 400, like `not_found`: the request is not one that Django lets in."""
    if _is_admin(request):
        return defaults.bad_request(request, exception)
    return error_response(TandemError(ErrorCode.INVALID_REQUEST, "Bad request"))


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Answer 500, like `not_found`."""
    if _is_admin(request):
        return defaults.server_error(request)
    return error_response(TandemError(ErrorCode.INTERNAL, "Internal server error"))


def error_response(error: TandemError, request_id: str | None = None) -> HttpResponse:
    """Answer in the API's envelope; a request that has no id yet gets one."""
    request_id = request_id or f"req_{uuid_utils.uuid7()}"
    response = HttpResponse(error_body(error, request_id), status=ERRORS[error.code].status)
    for name, value in (*error_headers(error), ANTHROPIC.identity(request_id)):
        response[name.decode()] = value.decode()
    return response


def _is_admin(request: HttpRequest) -> bool:
    return request.path == "/admin" or request.path.startswith("/admin/")
