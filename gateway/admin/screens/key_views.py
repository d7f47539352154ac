"""Gives pages that call the API their key, and takes it back."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from gateway.admin.screens.view import note, screen
from gateway.models import Team
from gateway.session_keys import Purpose, close_session, open_session
from inference.errors import TandemError

_ID_DIGITS = 18


def key_options(purpose: Purpose) -> dict[str, str]:
    """Return what the script of a page needs to get its key."""
    return {
        "purpose": purpose.name,
        "open_url": reverse("admin:open_session_key"),
        "close_url": reverse("admin:close_session_key"),
    }


@screen("gateway.add_apikey")
@require_POST
def open_key(request: HttpRequest) -> HttpResponse:
    """Make a key of the `team` for the `purpose`, and tell its text, this once."""
    wanted = request.POST.get("team", "")
    is_id = wanted.isascii() and wanted.isdecimal() and len(wanted) <= _ID_DIGITS
    team = Team.objects.filter(pk=int(wanted)).first() if is_id else None
    if team is None:
        return _refuse("team: there is no such team")
    name = request.POST.get("purpose", "")
    if name not in Purpose.__members__:
        return _refuse(f"purpose: must be one of {', '.join(Purpose.__members__)}")
    try:
        key, text = open_session(team, Purpose[name], request.user.get_username())
    except TandemError as error:
        return _refuse(error.message)
    note(request, key, f"Made for a {key.name.lower()} of {team.name}.")
    return JsonResponse(
        {
            "id": str(key.pk),
            "key": text,
            "prefix": key.prefix,
            "team": team.name,
            "expires_at": key.expires_at,
        }
    )


@screen("gateway.add_apikey")
@require_POST
def close_key(request: HttpRequest) -> HttpResponse:
    """Revoke a key that was made for a page of the same operator."""
    try:
        key_id = UUID(request.POST.get("id", ""))
    except ValueError:
        return _refuse("id: must be the id of a key")
    closed = close_session(key_id, request.user.get_username())
    if closed is not None:
        note(request, closed, "Revoked, its page being left.")
    return JsonResponse({"revoked": closed is not None})


def _refuse(message: str) -> JsonResponse:
    return JsonResponse({"error": message}, status=400)
