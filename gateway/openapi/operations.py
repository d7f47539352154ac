"""The routes for operators and their tools. None of them needs a key."""

from __future__ import annotations

from typing import Literal

from gateway.openapi.part import Part
from gateway.openapi.responses import failures, headers, json_answer
from gateway.openapi.schemas import AnswerModel, Schema, answered, ref
from inference.errors import ErrorCode
from inference.transport.frames import EngineState

_FAILURES = failures((ErrorCode.TOO_LARGE, ErrorCode.INTERNAL))
_PUBLIC: Schema = {"security": []}


class Liveness(AnswerModel):
    """The process answers."""

    status: Literal["ok"]


class ModelReadiness(AnswerModel):
    """The best state that any engine of the model is in."""

    state: EngineState | Literal["missing"]
    engines: int
    """Engines in that state."""
    reason: str
    """Why there is no engine, or why it failed."""


class Readiness(AnswerModel):
    """What the process needs to serve, and which of it is there."""

    status: Literal["ready", "not_ready"]
    database: bool
    redis: bool
    models: dict[str, ModelReadiness]


def part() -> Part:
    """Return what the document says about these routes."""
    return Part(
        name="Operations",
        description="For load balancers, monitoring and clients' tools. No key is needed.",
        paths={
            "/healthz": {"get": _alive("getLiveness", "Is this process alive?")},
            "/readyz": {"get": _ready()},
            "/metrics": {"get": _metrics()},
            "/api/hello": {"get": _alive("getHello", "Warm a connection up")},
            "/openapi.json": {"get": _document()},
        },
        models=answered(Liveness, Readiness),
    )


def _alive(operation_id: str, summary: str) -> Schema:
    answer = json_answer("It is alive.", ref(Liveness), {"status": "ok"})
    return _PUBLIC | {
        "operationId": operation_id,
        "summary": summary,
        "responses": {"200": answer, **_FAILURES},
    }


def _ready() -> Schema:
    ready = {"state": "ready", "engines": 1, "reason": ""}
    missing = {"state": "missing", "engines": 0, "reason": "no engine is running"}
    servers = {"database": True, "redis": True}
    return _PUBLIC | {
        "operationId": "getReadiness",
        "summary": "Can this process serve?",
        "description": "It can with its database, its Redis, and an engine for each model.",
        "responses": {
            "200": json_answer(
                "It can.",
                ref(Readiness),
                {"status": "ready", **servers, "models": {"m": ready}},
            ),
            **_FAILURES,
            "503": json_answer(
                "Something is missing.",
                ref(Readiness),
                {"status": "not_ready", **servers, "models": {"m": missing}},
            ),
        },
    }


def _metrics() -> Schema:
    answer = {
        "description": "The metrics, in Prometheus' text format.",
        "headers": headers("request-id"),
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
    return _PUBLIC | {
        "operationId": "getMetrics",
        "summary": "What Prometheus collects",
        "responses": {"200": answer, **_FAILURES},
    }


def _document() -> Schema:
    etag = {"description": "Changes with the document.", "schema": {"type": "string"}}
    known = headers("request-id") | {"etag": etag}
    content = {"application/json": {"schema": {"type": "object"}}}
    return _PUBLIC | {
        "operationId": "getOpenApi",
        "summary": "This document",
        "parameters": [
            {
                "name": "if-none-match",
                "in": "header",
                "description": "The `etag` of a copy.",
                "schema": {"type": "string"},
            }
        ],
        "responses": {
            "200": {"description": "The document.", "headers": known, "content": content},
            "304": {"description": "The copy is current.", "headers": known},
            **_FAILURES,
        },
    }
