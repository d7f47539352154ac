"""What a day leaves behind, made in seconds: teams that call, batches, and what fails."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
import openai
from openai.types import Batch

from gateway.request_ids import parse_request_id
from tests.acceptance.client import Client, script
from tests.acceptance.stack import Gateway, Stack, eventually
from tests.acceptance.teams import Member, make_member, rows
from tests.browser.models import FAR_MODEL, UPSTREAM
from tests.upstream_server import UpstreamServer, error_reply

_CHAT = "/v1/chat/completions"
_TEAMS = ("Research", "Support", "Search")
_QUESTIONS = (
    "Why are there two tides a day?",
    "Explain spring tides to a ten-year-old.",
    "What would become of the tides without the Moon?",
)
_BATCH_ROWS = 12
_SETTLED = (
    "SELECT count(*) FROM jobs_requestrecord WHERE team_id = ANY(%s) AND settled_at IS NOT NULL"
)


@dataclass(frozen=True)
class Traffic:
    """One of each kind, by the ids that the admin's addresses have."""

    model: str
    team_id: int
    key_id: str
    answered_id: UUID
    failed_id: UUID
    entry_id: int
    batch_id: UUID
    row_id: UUID
    response_id: UUID
    file_id: UUID
    fallback_id: UUID
    upstream: str = UPSTREAM
    mcp_server: str = "builtin"


def chat_row(custom_id: str, model: str, content: str, **fields: Any) -> dict[str, Any]:
    """Return one row of a batch."""
    messages = [{"role": "user", "content": content}]
    body = {"model": model, "messages": messages, "max_tokens": 1000} | fields
    return {"custom_id": custom_id, "method": "POST", "url": _CHAT, "body": body}


def as_lines(batch_rows: Iterable[dict[str, Any]]) -> bytes:
    """Return the file that holds these rows."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in batch_rows)


def submit(api: openai.OpenAI, batch_rows: Iterable[dict[str, Any]]) -> Batch:
    """Upload rows and make a batch of them."""
    file = api.files.create(file=("questions.jsonl", as_lines(batch_rows)), purpose="batch")
    return api.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )


def api_of(gateway: Gateway, member: Member) -> openai.OpenAI:
    """Return OpenAI's own client with a team's key. Close it by `with`."""
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=member.key, max_retries=0)


def make_traffic(stack: Stack, gateway: Gateway, model: str, upstream: UpstreamServer) -> Traffic:
    """Have three teams use the model, and wait until all of it is on record.

    A request to the upstream's model is answered by this one in its place.
    """
    teams = [make_member(stack, name=name, key={"name": f"{name}'s app"}) for name in _TEAMS]
    first = teams[0]
    stack.manage("top_up", first.team_name, "250", "--description", "Invoice 1042")
    (answered_id, failed_id), *_ = [_ask(gateway, member, model) for member in teams]
    fallback_id = _ask_in_vain(gateway, first, upstream)
    with api_of(gateway, first) as api:
        batch = submit(api, _batch_rows(model))
        response = api.responses.create(model=model, input=_QUESTIONS[0], background=True)
        eventually(lambda: api.batches.retrieve(batch.id).status == "completed", "the batch ends")
        eventually(
            lambda: api.responses.retrieve(response.id).status == "completed", "it is answered"
        )
    eventually(lambda: _is_settled(stack, teams), "everything is accounted for")
    batch_id = _id(batch.id)
    return Traffic(
        model=model,
        team_id=first.team_id,
        key_id=first.key_id,
        answered_id=answered_id,
        failed_id=failed_id,
        entry_id=_one(stack, "SELECT id FROM jobs_ledgerentry WHERE request_id = %s", answered_id),
        batch_id=batch_id,
        row_id=_one(stack, "SELECT id FROM jobs_work WHERE batch_id = %s LIMIT 1", batch_id),
        response_id=_id(response.id),
        file_id=_id(batch.input_file_id),
        fallback_id=fallback_id,
    )


def _batch_rows(model: str) -> list[dict[str, Any]]:
    """Return rows of which one is wrong."""
    asked = [_QUESTIONS[number % len(_QUESTIONS)] for number in range(_BATCH_ROWS)]
    batch_rows = [chat_row(f"question-{n}", model, question) for n, question in enumerate(asked)]
    batch_rows[7]["body"]["temperature"] = "hot"
    return batch_rows


def _ask(gateway: Gateway, member: Member, model: str) -> tuple[UUID, UUID]:
    """Return the ids of a request that was answered, and of one that failed."""
    client = Client(gateway.url, member.key)
    with client.http:
        answered = [client.ask(model, question) for question in _QUESTIONS]
        failed = client.ask(model, script(tokens=20, fail_at=5))
    assert failed.status_code >= httpx.codes.INTERNAL_SERVER_ERROR
    return _id(answered[0].headers["request-id"]), _id(failed.headers["request-id"])


def _ask_in_vain(gateway: Gateway, member: Member, upstream: UpstreamServer) -> UUID:
    """Return the id of a request to a model that could not answer, and whose fallback did."""
    error = {"type": "overloaded_error", "message": "The partner is full."}
    upstream.replies.append(error_reply(529, error))
    client = Client(gateway.url, member.key)
    with client.http:
        answer = client.ask(FAR_MODEL, _QUESTIONS[0])
    assert "tandem-fallback" in answer.headers
    return _id(answer.headers["request-id"])


def _is_settled(stack: Stack, teams: list[Member]) -> bool:
    """Say whether as much is settled as these teams have asked for, whatever others do."""
    ((settled,),) = rows(stack, _SETTLED, [member.team_id for member in teams])
    # A background response and the fallback's are two more, and the wrong row of the batch none.
    expected = len(_TEAMS) * (len(_QUESTIONS) + 1) + _BATCH_ROWS + 1
    return bool(settled >= expected)


def _id(name: str) -> UUID:
    found = parse_request_id(name)
    assert found is not None, name
    return found


def _one(stack: Stack, query: str, *values: Any) -> Any:
    ((found,),) = rows(stack, query, *values)
    return found
