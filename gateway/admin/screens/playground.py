"""The playground: an operator tries a prompt, through the API that callers use."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET

from gateway.admin.screens.key_views import key_options, payer_of, payers
from gateway.admin.screens.view import screen, show
from gateway.admin.waiting import Look, look
from gateway.session_keys import Purpose
from inference.models import Model


@screen("gateway.add_apikey")
@require_GET
def page(request: HttpRequest) -> HttpResponse:
    """Show it. Its script asks for a key with the first prompt, and gives it back at the end."""
    seen = look()
    models = [_shown(model, seen) for model in Model.objects.filter(enabled=True)]
    return show(
        request,
        "gateway/playground.html",
        "Playground",
        teams=payers(),
        payer=payer_of(request),
        models=models,
        chosen=request.GET.get("model", "") or _first_ready(models),
        options=key_options(Purpose.PLAYGROUND)
        # The script puts the id of a request in place of the last part.
        | {"request_url": reverse("admin:request_page", args=["ID"])},
    )


def _first_ready(models: list[dict[str, Any]]) -> str:
    return next((model["id"] for model in models if model["is_ready"]), "")


def _shown(model: Model, seen: Look) -> dict[str, Any]:
    return {
        "id": model.pk,
        "name": model.display_name or model.pk,
        "can_think": model.reasoning in (Model.Reasoning.OPTIONAL, Model.Reasoning.DEFAULT_ON),
        "context_tokens": model.context_tokens,
        "is_ready": seen.serves(model.pk),
    }
