"""Is this process alive, and can it serve? For load balancers, process managers and `serve`."""

from __future__ import annotations

import msgspec

from gateway.http.consumer import ApiConsumer
from gateway.http.request import ApiRequest
from inference.transport.frames import EngineReport, EngineState


class Alive(ApiConsumer):
    """`GET /healthz`: the event loop turns. Also what clients warm their connection up with."""

    public = True

    async def handle(self, request: ApiRequest) -> None:
        """Say so."""
        await self.respond_json(b'{"status":"ok"}')


class Ready(ApiConsumer):
    """`GET /readyz`: database, Redis, and an engine for each enabled model."""

    public = True

    async def handle(self, request: ApiRequest) -> None:
        """Answer 200 if everything is there, else 503; the body says what is missing."""
        services = self.services
        database = await services.directory.ping_database()
        loaded = services.directory.loaded_at_s is not None
        models = {
            entry.id: _model_state(services.dispatcher.engines.of(entry.id))
            for entry in (services.directory.catalogue.entries if loaded else ())
        }
        engines_ready = all(model["state"] == EngineState.READY for model in models.values())
        ready = database and loaded and services.dispatcher.redis_ok and engines_ready
        body = {
            "status": "ready" if ready else "not_ready",
            "database": database,
            "redis": services.dispatcher.redis_ok,
            "models": models,
        }
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        headers.append((b"request-id", request.public_id.encode()))
        await self.respond(200 if ready else 503, msgspec.json.encode(body), headers)


# The best state that any engine of a model is in speaks for the model.
_BEST_FIRST = (EngineState.READY, EngineState.LOADING, EngineState.FAILED, EngineState.DRAINING)


def _model_state(reports: list[EngineReport]) -> dict[str, object]:
    for state in _BEST_FIRST:
        of_state = [report for report in reports if report.state is state]
        if of_state:
            reason = next((report.reason for report in of_state if report.reason), "")
            return {"state": state, "engines": len(of_state), "reason": reason}
    return {"state": "missing", "engines": 0, "reason": "no engine is running"}
