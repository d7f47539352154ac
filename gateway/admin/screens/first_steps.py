"""What a new install needs next, with commands that can be copied.

Each step looks at what is there, so that the page is a check-list that ticks itself off.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from typing import Any, NamedTuple

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from gateway.admin.heartbeats import read_reports
from gateway.admin.screens.view import screen, show
from gateway.models import ApiKey
from gateway.session_keys import Purpose
from inference.models import Model
from inference.transport.frames import EngineReport, EngineState
from jobs.models import Price, RequestRecord

_MANAGE = ".venv/bin/python manage.py"
_MODELS_SHOWN = 10


class Step(NamedTuple):
    """One thing to do. `place` is a page of the admin where it can be done instead."""

    title: str
    done: bool
    text: str
    commands: str = ""
    place: str = ""
    optional: bool = False


@screen()
@require_GET
def page(request: HttpRequest) -> HttpResponse:
    """Show the steps; the first that is not done stands out."""
    return show(request, "gateway/start.html", "First steps", **check_list(request))


def check_list(request: HttpRequest) -> dict[str, Any]:
    """Return the steps, and the first that is needed and not done."""
    steps = first_steps(request.build_absolute_uri("/").rstrip("/"))
    left = (step for step in steps if not (step.done or step.optional))
    return {"steps": steps, "following": next(left, None)}


def is_new() -> bool:
    """Whether nobody has used this install yet."""
    return not RequestRecord.objects.exists()


def first_steps(base_url: str) -> list[Step]:
    """Return what there is to do, in its order."""
    models = list(Model.objects.filter(enabled=True).values_list("pk", flat=True))
    return [
        _model_step(models),
        _engine_step(models),
        _key_step(),
        _price_step(models),
        _request_step(base_url, models),
        _client_step(base_url, models),
    ]


def _model_step(models: list[str]) -> Step:
    return Step(
        title="A model in the catalogue",
        done=bool(models),
        text="The first command fetches a small model that runs on any processor, and lists it. "
        "Others are added here: their weights in a folder, or at another provider.",
        commands=f"{_MANAGE} fetch_model",
        place=reverse("admin:inference_model_add"),
    )


def _engine_step(models: list[str]) -> Step:
    reports = read_reports()
    ready = {report.model for report in reports or () if report.state is EngineState.READY}
    unserved = [model for model in models if model not in ready]
    model = next(iter([*unserved, *models]), "MODEL")
    if reports is None:
        text = "Redis does not answer: nobody can say whether an engine is up."
    else:
        # What is wrong is said first: of many models not all are told.
        text = _engines_say([*unserved, *(one for one in models if one in ready)], reports)
    return Step(
        title="An engine that serves it",
        # Of all enabled models: callers of any other get 503.
        done=bool(models) and not unserved,
        text=text,
        commands=f"{_MANAGE} serve\n{_MANAGE} check_engine {shlex.quote(model)}",
    )


def _engines_say(models: list[str], reports: list[EngineReport]) -> str:
    """Say of the first models what their engines are at."""
    said = [_of_model(model, reports) for model in models[:_MODELS_SHOWN]]
    if more := len(models) - len(said):
        said.append(f"And {more} more models.")
    said.append(
        "The first command starts an engine for each model that is enabled when it starts; the "
        "second tries one out alone."
    )
    return " ".join(said)


def _of_model(model: str, reports: list[EngineReport]) -> str:
    states = Counter(
        f"{report.state} ({report.reason})" if report.reason else str(report.state)
        for report in reports
        if report.model == model
    )
    if not states:
        return f"{model}: no engine is running."
    return f"{model}: {', '.join(f'{count} {state}' for state, count in states.items())}."


def _key_step() -> Step:
    made_here = [purpose.value for purpose in Purpose]
    live = ApiKey.objects.filter(
        Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now()), revoked_at__isnull=True
    )
    return Step(
        title="A team and a key",
        done=live.exclude(name__in=made_here).exists(),
        text="Keys belong to teams; a team is made with its first key. The key is shown once.",
        commands=f"{_MANAGE} create_api_key laptop --team research",
        place=reverse("admin:gateway_apikey_add"),
    )


def _price_step(models: list[str]) -> Step:
    priced = Price.objects.filter(model__in=models, effective_from__lte=timezone.now())
    return Step(
        title="What it costs",
        done=priced.exists(),
        text="A model without a price is free, and its use is counted all the same.",
        place=reverse("admin:jobs_price_add"),
        optional=True,
    )


def _request_step(base_url: str, models: list[str]) -> Step:
    body = {
        "model": models[0] if models else "MODEL",
        "max_tokens": 64,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
    }
    return Step(
        title="A first request",
        done=not is_new(),
        text="It appears among the requests a moment after it has ended.",
        commands=f"export TANDEM_API_KEY=sk-tandem-...\ncurl {base_url}/v1/messages \\\n"
        '  -H "x-api-key: $TANDEM_API_KEY" -H "content-type: application/json" \\\n'
        f"  -d {shlex.quote(json.dumps(body))}",
        place=reverse("admin:playground"),
    )


def _client_step(base_url: str, models: list[str]) -> Step:
    model = shlex.quote(models[0] if models else "MODEL")
    return Step(
        title="Your own programs",
        done=False,
        text="Every SDK of Anthropic and OpenAI needs another address and a key, and nothing else.",
        commands=f"export ANTHROPIC_BASE_URL={base_url} ANTHROPIC_API_KEY=$TANDEM_API_KEY\n"
        f"export OPENAI_BASE_URL={base_url}/v1 OPENAI_API_KEY=$TANDEM_API_KEY\n"
        f"{_MANAGE} claude --model {model}",
        optional=True,
    )
