"""A team with a key, and a client that sends it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.test import Client
from django.utils import timezone

from gateway.keys import mint
from gateway.models import ApiKey, Scope
from jobs.models import RequestRecord


class Caller:
    """Calls the control API as a key does."""

    def __init__(self, plaintext: str) -> None:
        self._http = Client(
            headers={"x-api-key": plaintext},
            enforce_csrf_checks=True,
            raise_request_exception=False,
        )
        self.key = ApiKey.objects.select_related("team").get(prefix=plaintext[:16])
        self.team = self.key.team

    def get(self, path: str, **query: Any) -> Any:
        """Return the answer to a GET."""
        return self._http.get(f"/control/v1/{path}", query)

    def send(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer to a request with a JSON body."""
        data = b"" if body is None else msgspec.json.encode(body)
        content_type = "application/json"
        return self._http.generic(method, f"/control/v1/{path}", data, content_type)


@pytest.fixture
def caller(db: None) -> Caller:
    """Return a caller whose key may do everything."""
    return Caller(mint("laptop", "blue", owner="ann", scopes=Scope.values))


@pytest.fixture
def reader(caller: Caller) -> Caller:
    """Return a caller of the same team whose key may only read."""
    return Caller(mint("monitor", "blue", scopes=[Scope.READ]))


@pytest.fixture
def stranger(db: None) -> Caller:
    """Return a caller of another team."""
    return Caller(mint("stranger", "red", scopes=Scope.values))


MakeRecord = Callable[..., RequestRecord]


@pytest.fixture
def make_record() -> MakeRecord:
    """Return a function that puts a request on record: a minute younger with each."""
    made = 0

    def make(caller: Caller, **fields: Any) -> RequestRecord:
        nonlocal made
        made += 1
        begun = timezone.now() - timedelta(hours=1) + timedelta(minutes=made)
        empty = {
            "id": uuid.uuid4(),
            "created_at": begun,
            "closed_at": begun + timedelta(seconds=2),
            "team_id": caller.team.id,
            "key_id": caller.key.id,
            "key_name": caller.key.name,
            "dialect": "anthropic",
            "lane": "realtime",
            "model": "tiny",
            "status": "completed",
            "ending": "finished",
            "detail": "end",
            "input_tokens": 10,
            "cached_tokens": 4,
            "output_tokens": 5,
            "cost_micros": 42,
        }
        return RequestRecord.objects.create(**(empty | fields))

    return make
