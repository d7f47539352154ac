"""What the gateway says about itself while everything is starting."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Readiness:
    """One answer of `/readyz`."""

    is_ready: bool
    models: dict[str, str]
    """The state of each model."""
    failures: dict[str, str]
    """Why each model that has failed did."""


def ask(host: str, port: int, timeout_s: float = 2) -> Readiness | None:
    """Return the gateway's answer, or None while it gives none."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return read(answer.status, json.loads(answer.read()))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def read(status: int, body: dict[str, Any]) -> Readiness:
    """Return what an answer of `/readyz` means."""
    models = body.get("models", {})
    return Readiness(
        is_ready=status == http.client.OK,
        models={name: model.get("state", "unknown") for name, model in models.items()},
        failures={
            name: model.get("reason") or "no reason given"
            for name, model in models.items()
            if model.get("state") == "failed"
        },
    )
