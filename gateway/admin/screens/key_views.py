"""Gives pages that call the API their key, and takes it back."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from gateway.admin.screens.view import note, screen
from gateway.models import Team
from gateway.session_keys import Purpose, close_session, open_session
from gateway.team_ids import parse_team_id
from inference.errors import TandemError

_TEAMS = 500
_CHOSEN = "paying_team"


def key_options(purpose: Purpose) -> dict[str, str]:
    """Return what the script of a page needs to get its key."""
    return {
        "purpose": purpose.name,
        "open_url": reverse("admin:open_session_key"),
        "close_url": reverse("admin:close_session_key"),
    }


def payer_of(request: HttpRequest) -> int | None:
    """Return the team that this operator chose last in this session; None for none.

    No other is chosen for anybody: a team pays.
    """
    chosen = request.session.get(_CHOSEN)
    return chosen if isinstance(chosen, int) else None


def payers() -> QuerySet[Team]:
    """Return the teams that a page may offer to choose from: of very many, the first by name."""
    return Team.objects.all()[:_TEAMS]


@screen("gateway.add_apikey")
@require_POST
def open_key(request: HttpRequest) -> HttpResponse:
    """Make a key of the `team` for the `purpose`, and tell its text, this once."""
    team_id = parse_team_id(request.POST.get("team", ""))
    team = None if team_id is None else Team.objects.filter(pk=team_id).first()
    if team is None:
        return _refuse("team: there is no such team")
    name = request.POST.get("purpose", "")
    if name not in Purpose.__members__:
        return _refuse(f"purpose: must be one of {', '.join(Purpose.__members__)}")
    try:
        key, text = open_session(team, Purpose[name], request.user.get_username())
    except TandemError as error:
        return _refuse(error.message)
    request.session[_CHOSEN] = team.pk
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
