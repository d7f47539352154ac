"""Stored responses of two teams, made as the service makes them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.utils import timezone

from inference.events import Finished, FinishReason, Usage
from inference.fold import Answer, AnswerPart
from inference.request import Lane, TextPart
from jobs import responses
from jobs.models import StoredResponse
from jobs.responses import NewResponse
from jobs.work import replies
from jobs.work.enqueue import NewWork

BLUE, RED = 1, 2
KEY = str(uuid.uuid4())

MakeResponse = Callable[..., StoredResponse]


def an_answer(*parts: AnswerPart, reason: FinishReason = FinishReason.END) -> Answer:
    usage = Usage(prompt_tokens=3, cached_tokens=1, output_tokens=2)
    return Answer(
        parts=parts or (TextPart("hello"),), finished=Finished(reason=reason, usage=usage)
    )


@pytest.fixture
def make_response(db: None) -> MakeResponse:
    """Return a function that stores a response, each a second younger than the one before."""
    made = 0

    def make(
        team_id: int = BLUE,
        *,
        input: object = "hi",
        items: list[dict[str, Any]] | None = None,
        body: dict[str, Any] | None = None,
        **fields: Any,
    ) -> StoredResponse:
        nonlocal made
        made += 1
        created_at = timezone.now() - timedelta(hours=1) + timedelta(seconds=made)
        new = NewResponse(
            id=str(uuid.uuid4()),
            team_id=team_id,
            key_id=KEY,
            model="tiny",
            lane=Lane.BACKGROUND,
            created_at=created_at,
            deadline_at=created_at + timedelta(days=1),
            expires_at=created_at + timedelta(days=30),
            body=msgspec.json.encode({"model": "tiny", "input": input, **(body or {})}),
            items=msgspec.json.encode(items or []),
            **fields,
        )
        work = None
        if new.background:
            work = NewWork(
                id=new.id,
                team_id=team_id,
                key_id=KEY,
                dialect="responses",
                model="tiny",
                lane=Lane.BACKGROUND,
                created_at=created_at,
                deadline_at=new.deadline_at,
            )
        responses.create(new, work)
        return StoredResponse.objects.get(pk=new.id)

    return make


def end(row: StoredResponse, how: responses.ResponseEnd | None = None) -> StoredResponse:
    """End a response as the recorder of its work does."""
    replies.end({row.pk: how or responses.completed(an_answer())}, timezone.now())
    row.refresh_from_db()
    return row
