"""Who calls the control API: a live API key, and what its scopes let it do."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from gateway.keys import find_live_key
from gateway.models import ApiKey, Scope, Team
from inference.errors import ErrorCode, TandemError


class KeyAuthentication(BaseAuthentication):
    """Reads the key as every other route does; the request's user is the key's team."""

    def authenticate(self, request: Request) -> tuple[Team, ApiKey]:
        """Return the team and the key. Raises `TandemError` (AUTHENTICATION)."""
        key = find_live_key(_sent_key(request))
        return key.team, key


class HasScope(BasePermission):
    """Reading takes the scope `read` or `admin`, changing takes `admin`."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Let the request in. Raises `TandemError` (PERMISSION)."""
        assert isinstance(request.auth, ApiKey)
        scopes = [Scope.READ, Scope.ADMIN] if request.method in SAFE_METHODS else [Scope.ADMIN]
        if not set(scopes) & set(request.auth.scopes):
            raise TandemError(
                ErrorCode.PERMISSION,
                f"this API key lacks the scope '{scopes[0]}', which {request.method} "
                f"{request.path} needs",
            )
        return True


def _sent_key(request: Request) -> str:
    """Return the key from `x-api-key`, or else from `Authorization: Bearer`."""
    if key := request.headers.get("x-api-key", "").strip():
        return key
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise TandemError(
            ErrorCode.AUTHENTICATION,
            "no API key: send it as `x-api-key` or as `Authorization: Bearer`",
        )
    return key.strip()


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The two headers, under the names that the whole API's document uses."""

    target_class = KeyAuthentication
    name = ["apiKey", "bearer"]

    def get_security_requirement(self, auto_schema: Any) -> list[dict[str, list[str]]]:
        """Ask for one of them; the library would ask for both."""
        return [{name: []} for name in self.name]

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        """Describe both."""
        return [
            {"type": "apiKey", "in": "header", "name": "x-api-key"},
            {"type": "http", "scheme": "bearer"},
        ]
