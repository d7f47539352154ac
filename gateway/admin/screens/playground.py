"""The playground: an operator tries a prompt, through the API that callers use."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET

from gateway.admin.screens.key_views import key_options
from gateway.admin.screens.view import screen, show
from gateway.models import Team
from gateway.session_keys import Purpose
from inference.models import Model

_TEAMS = 500


@screen("gateway.add_apikey")
@require_GET
def page(request: HttpRequest) -> HttpResponse:
    """Show it. Its script asks for a key with the first prompt, and gives it back at the end."""
    return show(
        request,
        "gateway/playground.html",
        "Playground",
        teams=Team.objects.all()[:_TEAMS],
        models=[_shown(model) for model in Model.objects.filter(enabled=True)],
        chosen=request.GET.get("model", ""),
        options=key_options(Purpose.PLAYGROUND)
        # The script puts the id of a request in place of the last part.
        | {"request_url": reverse("admin:request_page", args=["ID"])},
    )


def _shown(model: Model) -> dict[str, Any]:
    return {
        "id": model.pk,
        "name": model.display_name or model.pk,
        "can_think": model.reasoning in (Model.Reasoning.OPTIONAL, Model.Reasoning.DEFAULT_ON),
        "context_tokens": model.context_tokens,
    }
