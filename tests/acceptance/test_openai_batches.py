"""OpenAI's batches by OpenAI's own client: from a file of requests to a file of answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import httpx
import openai
import pytest
from openai.types import Batch

from tests.acceptance.client import script
from tests.acceptance.stack import Gateway, Stack, ending, eventually
from tests.acceptance.teams import make_member

pytestmark = pytest.mark.acceptance

CHAT: Final = "/v1/chat/completions"
ENDS = ("completed", "failed", "expired", "cancelled")


@pytest.fixture(scope="module", autouse=True)
def _clerk(stack: Stack) -> Iterator[None]:
    """Have somebody validate batches and write their results."""
    with ending(stack.start_clerk()):
        yield


@pytest.fixture(scope="module")
def api(stack: Stack, gateway: Gateway) -> Iterator[openai.OpenAI]:
    """Return OpenAI's own client, of the shared gateway."""
    url = f"{gateway.url}/v1"
    with openai.OpenAI(base_url=url, api_key=stack.key, max_retries=0) as client:
        yield client


def chat_row(custom_id: str, model: str, content: str = "Hello", **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    body = {"model": model, "messages": messages, "max_tokens": 100} | fields
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}


def submit(
    api: openai.OpenAI, rows: Iterable[dict[str, Any]] | bytes, endpoint: Any = CHAT, **fields: Any
) -> Batch:
    """Upload rows and make a batch of them."""
    if not isinstance(rows, bytes):
        rows = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    file = api.files.create(file=("rows.jsonl", rows), purpose="batch")
    return api.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", **fields
    )


def wait(api: openai.OpenAI, batch: Batch, status: str = "completed") -> Batch:
    """Wait for the end, which must be this one."""

    def has_ended() -> Batch | None:
        now = api.batches.retrieve(batch.id)
        return now if now.status in ENDS else None

    ended = eventually(has_ended, "the batch ends")
    assert ended is not None
    assert ended.status == status, ended.errors
    return ended


def lines(api: openai.OpenAI, file_id: str | None) -> dict[str, dict[str, Any]]:
    """Return a file's lines by their custom ids, each of which it has once."""
    assert file_id is not None
    found = [json.loads(line) for line in api.files.content(file_id).text.splitlines()]
    by_id = {line["custom_id"]: line for line in found}
    assert len(by_id) == len(found)
    return by_id


@pytest.mark.every_route
def test_a_batch_of_chat_completions_is_answered(api: openai.OpenAI, model: str) -> None:
    rows = [chat_row(f"row-{n}", model, f"Hello {n}") for n in range(20)]
    batch = submit(api, rows, metadata={"for": "a test"})
    assert batch.id.startswith("batch_")
    assert batch.status == "validating"
    assert batch.metadata == {"for": "a test"}
    ended = wait(api, batch)
    assert ended.model == model
    assert ended.request_counts is not None
    assert (ended.request_counts.total, ended.request_counts.completed) == (20, 20)
    assert ended.error_file_id is None
    answers = lines(api, ended.output_file_id)
    assert answers.keys() == {row["custom_id"] for row in rows}
    for line in answers.values():
        assert line["error"] is None
        assert line["response"]["status_code"] == 200
        body = line["response"]["body"]
        assert body["object"] == "chat.completion"
        assert body["choices"][0]["message"]["content"]
    usages = [line["response"]["body"]["usage"] for line in answers.values()]
    assert ended.usage is not None
    assert ended.usage.output_tokens == sum(usage["completion_tokens"] for usage in usages)
    assert ended.in_progress_at is not None
    assert ended.finalizing_at is not None
    assert ended.completed_at is not None
    assert ended.created_at <= ended.in_progress_at <= ended.finalizing_at <= ended.completed_at
    listed = api.files.list(purpose="batch_output").data
    assert ended.output_file_id in {file.id for file in listed}


@pytest.mark.every_route
def test_a_batch_may_be_for_messages_or_responses(api: openai.OpenAI, model: str) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    bodies: dict[str, dict[str, Any]] = {
        "/v1/messages": {"model": model, "max_tokens": 50, "messages": messages},
        "/v1/responses": {"model": model, "input": "Hello"},
    }
    kinds = {}
    for endpoint, body in bodies.items():
        row = {"custom_id": "a", "method": "POST", "url": endpoint, "body": body}
        ended = wait(api, submit(api, [row], endpoint))
        answer = lines(api, ended.output_file_id)["a"]["response"]["body"]
        kinds[endpoint] = answer.get("object") or answer.get("type")
    assert kinds == {"/v1/messages": "message", "/v1/responses": "response"}


@pytest.mark.every_route
def test_rows_that_cannot_be_run_are_told_in_the_error_file(api: openai.OpenAI, model: str) -> None:
    rows = [chat_row("good", model), chat_row("bad", model, temperature="hot")]
    ended = wait(api, submit(api, rows))
    assert ended.request_counts is not None
    assert (ended.request_counts.completed, ended.request_counts.failed) == (1, 1)
    assert lines(api, ended.output_file_id).keys() == {"good"}
    bad = lines(api, ended.error_file_id)["bad"]
    assert bad["error"] is None
    assert bad["response"]["status_code"] == 400
    assert bad["response"]["body"]["error"]["param"] == "temperature"


def test_bug_41_a_batch_without_answers_says_so(api: openai.OpenAI, model: str) -> None:
    ended = wait(api, submit(api, [chat_row("bad", model, temperature="hot")]))
    assert ended.output_file_id is None
    assert lines(api, ended.error_file_id).keys() == {"bad"}
    assert ended.request_counts is not None
    assert (ended.request_counts.completed, ended.request_counts.failed) == (0, 1)


def test_bug_40_a_bad_file_fails_its_batch_and_not_the_call(api: openai.OpenAI, model: str) -> None:
    rows = [
        chat_row("a", model),
        chat_row("a", model),
        chat_row("b", "nobody"),
        chat_row("c", model) | {"url": "/v1/messages"},
        chat_row("d", model, stream=True),
    ]
    failed = wait(api, submit(api, rows), "failed")
    assert failed.failed_at is not None
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert [(error.line, error.code) for error in failed.errors.data] == [
        (2, "duplicate_custom_id"),
        (3, "model_not_found"),
        (4, "url_mismatch"),
        (5, "unsupported_parameter"),
    ]
    assert failed.request_counts is not None
    assert failed.request_counts.total == 0
    assert failed.output_file_id is None


def test_an_empty_file_fails_its_batch(api: openai.OpenAI) -> None:
    failed = wait(api, submit(api, b""), "failed")
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert [error.code for error in failed.errors.data] == ["empty_file"]


def test_marks_line_breaks_and_blank_lines_do_no_harm(api: openai.OpenAI, model: str) -> None:
    one, two = (json.dumps(chat_row(name, model)).encode() for name in "ab")
    ended = wait(api, submit(api, b"\xef\xbb\xbf" + one + b"\r\n\r\n  \r\n" + two))
    assert lines(api, ended.output_file_id).keys() == {"a", "b"}


def test_a_cancelled_batch_keeps_what_was_done(api: openai.OpenAI, stack: Stack) -> None:
    name = stack.add_model("vendor/Cancelled", capacity=2)
    slow = script(tokens=10, token_delay_s=0.05)
    rows = [chat_row(f"row-{n}", name, slow) for n in range(100)]
    with ending(stack.start_worker(name)):
        batch = submit(api, rows)
        eventually(
            lambda: (counts := api.batches.retrieve(batch.id).request_counts) and counts.completed,
            "the first row is done",
        )
        cancelling = api.batches.cancel(batch.id)
        assert cancelling.status in ("cancelling", "finalizing", "cancelled")
        assert cancelling.cancelling_at is not None
        ended = wait(api, batch, "cancelled")
        assert api.batches.cancel(batch.id).status == "cancelled"
    done, left = lines(api, ended.output_file_id), lines(api, ended.error_file_id)
    assert done
    assert done.keys() | left.keys() == {row["custom_id"] for row in rows}
    assert {line["error"]["code"] for line in left.values()} == {"batch_cancelled"}
    assert ended.request_counts is not None
    counts = ended.request_counts
    assert (
        (counts.completed, counts.failed) == (len(done), len(left)) == (len(done), 100 - len(done))
    )


def test_a_batch_that_is_over_cannot_be_cancelled(api: openai.OpenAI, model: str) -> None:
    ended = wait(api, submit(api, [chat_row("a", model)]))
    with pytest.raises(openai.ConflictError) as caught:
        api.batches.cancel(ended.id)
    assert "Cannot cancel a batch with status 'completed'" in caught.value.message


def test_batches_are_listed_newest_first(api: openai.OpenAI, model: str) -> None:
    made = [submit(api, [chat_row("a", model)]).id for _ in range(3)]
    newest = [batch.id for batch in api.batches.list(limit=3)][:3]
    assert newest == made[::-1]
    page = api.batches.list(limit=1, after=made[2])
    assert [batch.id for batch in page.data] == [made[1]]
    assert page.has_more


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"completion_window": "1h"}, "completion_window"),
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"input_file_id": "file-x"}, "input_file_id"),
        ({"metadata": {"a": 5}}, "metadata.a"),
    ],
    ids=str,
)
def test_a_bad_call_is_refused_by_its_field(
    api: openai.OpenAI, changes: dict[str, Any], param: str
) -> None:
    file = api.files.create(file=("rows.jsonl", b"{}"), purpose="batch")
    good: dict[str, Any] = {
        "input_file_id": file.id,
        "endpoint": CHAT,
        "completion_window": "24h",
    }
    with pytest.raises(openai.BadRequestError) as caught:
        api.batches.create(**(good | changes))
    assert caught.value.param == param


def test_a_repeated_call_with_the_same_key_makes_one_batch(api: openai.OpenAI, model: str) -> None:
    row = json.dumps(chat_row("a", model)).encode()
    file = api.files.create(file=("rows.jsonl", row), purpose="batch")
    other = api.files.create(file=("rows.jsonl", row), purpose="batch")

    def create(file_id: str) -> str:
        return api.batches.create(
            input_file_id=file_id,
            endpoint=CHAT,
            completion_window="24h",
            extra_headers={"Idempotency-Key": "once"},
        ).id

    assert create(file.id) == create(file.id)
    with pytest.raises(openai.ConflictError):
        create(other.id)


def test_bug_33_another_team_sees_nothing_of_a_batch(
    api: openai.OpenAI, stack: Stack, gateway: Gateway, model: str
) -> None:
    batch = submit(api, [chat_row("a", model)])
    key = make_member(stack).key
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0) as stranger:
        assert stranger.batches.list().data == []
        for call in (stranger.batches.retrieve, stranger.batches.cancel):
            with pytest.raises(openai.NotFoundError):
                call(batch.id)
    wait(api, batch)


def test_a_batch_that_never_was_is_not_found(stack: Stack, gateway: Gateway) -> None:
    headers = {"authorization": f"Bearer {stack.key}"}
    for name in ("batch_x", "x", "batch_00000000-0000-0000-0000-000000000000"):
        answer = httpx.get(f"{gateway.url}/v1/batches/{name}", headers=headers)
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "not_found"
