"""Anthropic's Message Batches by Anthropic's own SDK, and by plain HTTP for what it hides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import psutil
import psycopg
import pytest
from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse

from tests.acceptance.client import script
from tests.acceptance.stack import Gateway, Stack, ending, eventually
from tests.acceptance.teams import make_member, set_price

pytestmark = pytest.mark.acceptance

_PATH = "/v1/messages/batches"


@pytest.fixture(scope="module", autouse=True)
def clerk(stack: Stack) -> Iterator[None]:
    """Have somebody end batches."""
    with ending(stack.start_clerk()):
        yield


@pytest.fixture
def http(stack: Stack, gateway: Gateway) -> Iterator[httpx.Client]:
    """Return a client that hides nothing."""
    headers = {"x-api-key": stack.key, "anthropic-version": "2023-06-01"}
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=60) as client:
        yield client


def request(model: str, custom_id: str, content: str = "hello", **fields: Any) -> Any:
    messages = [{"role": "user", "content": content}]
    params = {"model": model, "max_tokens": 1000, "messages": messages} | fields
    return {"custom_id": custom_id, "params": params}


def wait_for_end(sdk: anthropic.Anthropic, batch: MessageBatch) -> MessageBatch:
    """Poll as the documentation says, and return the batch once it has ended."""

    def ended() -> MessageBatch | None:
        now = sdk.messages.batches.retrieve(batch.id)
        return now if now.processing_status == "ended" else None

    return eventually(ended, f"the batch {batch.id} ends") or batch


def working(stack: Stack, model: str) -> int:
    """How many rows the model's engines run, by their own count."""
    return sum(report.work_in_flight for report in stack.reports() if report.model == model)


def add_model(stack: Stack, sdk: anthropic.Anthropic, name: str, **fields: Any) -> str:
    """Put a model into the catalogue, and wait until the gateway knows it."""
    stack.add_model(name, **fields)

    def known() -> bool:
        return name in {model.id for model in sdk.models.list(limit=1000)}

    eventually(known, f"the gateway knows {name}")
    return name


def results(
    sdk: anthropic.Anthropic, batch: MessageBatch
) -> dict[str, MessageBatchIndividualResponse]:
    lines = list(sdk.messages.batches.results(batch.id))
    by_id = {line.custom_id: line for line in lines}
    assert len(by_id) == len(lines), "a custom_id came twice"
    return by_id


@pytest.mark.every_route
def test_a_batch_runs_and_every_request_has_its_result_once(
    sdk: anthropic.Anthropic, model: str, stack: Stack
) -> None:
    requests = [request(model, f"row-{n}", script(text=f"answer {n}")) for n in range(30)]
    made = sdk.messages.batches.create(requests=requests)
    assert made.id.startswith("msgbatch_")
    assert made.type == "message_batch"
    assert made.request_counts.processing == len(requests)
    assert (made.expires_at - made.created_at).total_seconds() == 24 * 60 * 60
    assert made.results_url is None
    ended = wait_for_end(sdk, made)
    assert ended.ended_at is not None
    counts = ended.request_counts
    assert (counts.succeeded, counts.processing, counts.errored) == (len(requests), 0, 0)
    found = results(sdk, ended)
    assert set(found) == {f"row-{n}" for n in range(30)}
    for n in range(30):
        result = found[f"row-{n}"].result
        assert result.type == "succeeded"
        assert result.message.model == model
        (block,) = result.message.content
        assert block.type == "text"
        assert block.text == f"answer {n}"


@pytest.mark.every_route
def test_a_bad_request_ends_errored_and_the_others_go_on(
    sdk: anthropic.Anthropic, model: str
) -> None:
    bad: dict[str, Any] = {
        "no-model": request("nobody/nothing", "no-model"),
        "streamed": request(model, "streamed", stream=True),
        "too-hot": request(model, "too-hot", temperature=9),
        "not-an-object": {"custom_id": "not-an-object", "params": [1]},
        "document": request(model, "document", [{"type": "document", "source": {}}]),  # type: ignore[arg-type]
    }
    made = sdk.messages.batches.create(requests=[*bad.values(), request(model, "good")])
    found = results(sdk, wait_for_end(sdk, made))
    assert found["good"].result.type == "succeeded"
    said = {}
    for name in bad:
        result = found[name].result
        assert result.type == "errored"
        assert result.error.request_id is not None
        said[name] = (result.error.error.type, result.error.error.message)
    assert said["no-model"] == ("not_found_error", "model 'nobody/nothing' not found")
    assert said["too-hot"][1].startswith("temperature: ")
    assert said["streamed"][1].startswith("stream: ")
    assert said["document"][1].endswith("Unsupported content block type: 'document'")
    assert said["not-an-object"] == (
        "invalid_request_error",
        "The request body must be a JSON object",
    )


def test_a_cancelled_batch_keeps_what_was_answered(sdk: anthropic.Anthropic, stack: Stack) -> None:
    model = add_model(stack, sdk, "batch/one-at-a-time", capacity=1)
    slow = script(tokens=40, token_delay_s=0.05)
    requests = [request(model, "first", slow), *(request(model, f"late-{n}") for n in range(3))]
    with ending(stack.start_worker(model)):
        made = sdk.messages.batches.create(requests=requests)
        eventually(lambda: working(stack, model), "the first request runs")
        cancelled = sdk.messages.batches.cancel(made.id)
        assert cancelled.processing_status == "canceling"
        assert cancelled.cancel_initiated_at is not None
        ended = wait_for_end(sdk, made)
    assert ended.request_counts.succeeded == 1
    assert ended.request_counts.canceled == 3
    found = results(sdk, ended)
    assert found["first"].result.type == "succeeded"
    assert {found[f"late-{n}"].result.type for n in range(3)} == {"canceled"}


def test_a_batch_that_has_ended_can_be_deleted_and_no_sooner(
    sdk: anthropic.Anthropic, stack: Stack, model: str
) -> None:
    idle = add_model(stack, sdk, "batch/nobody-serves-it")
    waiting = sdk.messages.batches.create(requests=[request(idle, "a")])
    with pytest.raises(anthropic.BadRequestError, match="has not ended"):
        sdk.messages.batches.delete(waiting.id)
    with pytest.raises(anthropic.AnthropicError, match="results"):
        sdk.messages.batches.results(waiting.id)
    sdk.messages.batches.cancel(waiting.id)
    assert wait_for_end(sdk, waiting).request_counts.canceled == 1
    assert sdk.messages.batches.delete(waiting.id).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        sdk.messages.batches.retrieve(waiting.id)


def test_batches_are_paged_through_newest_first(sdk: anthropic.Anthropic, model: str) -> None:
    made = [sdk.messages.batches.create(requests=[request(model, "a")]).id for _ in range(5)]
    newest_first = made[::-1]
    assert [batch.id for batch in sdk.messages.batches.list(limit=2)][:5] == newest_first
    first = sdk.messages.batches.list(limit=2)
    assert (first.first_id, first.last_id, first.has_more) == (made[4], made[3], True)
    before = sdk.messages.batches.list(limit=2, before_id=made[1])
    assert [batch.id for batch in before.data] == [made[3], made[2]]
    assert before.has_more


def test_another_teams_batch_is_not_there(
    sdk: anthropic.Anthropic, stack: Stack, gateway: Gateway, model: str
) -> None:
    made = sdk.messages.batches.create(requests=[request(model, "a")])
    key = make_member(stack).key
    with anthropic.Anthropic(base_url=gateway.url, api_key=key) as spy:
        for call in (
            spy.messages.batches.retrieve,
            spy.messages.batches.cancel,
            spy.messages.batches.delete,
            spy.messages.batches.results,
        ):
            with pytest.raises(anthropic.NotFoundError):
                call(made.id)
        assert made.id not in {batch.id for batch in spy.messages.batches.list()}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The request body is not valid JSON: Input data was truncated"),
        (b"[]", "body: Expected `object`, got `array`"),
        (b"{}", "requests: Field required"),
        (b'{"requests": []}', "requests: Expected a list with at least 1 item"),
        (b'{"requests": [{"params": {}}]}', "requests.0.custom_id: Field required"),
        (b'{"requests": [{"custom_id": "a"}]}', "requests.0.params: Field required"),
        (
            b'{"requests": [{"custom_id": "a b", "params": {}}]}',
            "requests.0.custom_id: Expected a string of 1 to 64 letters, digits, `_` and `-`",
        ),
        (
            b'{"requests": [{"custom_id": "a", "params": {}}, {"custom_id": "a", "params": {}}]}',
            "requests: the custom_id 'a' is used more than once",
        ),
        (
            b'{"requests": [' + b'{"custom_id": "a", "params": {}},' * 100_000 + b"{}]}",
            "requests.100000.custom_id: Field required",
        ),
    ],
)
def test_a_body_that_is_no_batch_is_refused(http: httpx.Client, body: bytes, message: str) -> None:
    answer = http.post(_PATH, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"] == {"type": "invalid_request_error", "message": message}


def test_a_body_of_batch_size_is_taken_and_a_larger_one_refused(
    http: httpx.Client, stack: Stack, model: str
) -> None:
    text = "word " * 200_000
    large = {"requests": [request(model, f"row-{n}", text) for n in range(40)]}
    body = json.dumps(large).encode()
    assert len(body) > 32 * 1024 * 1024
    answer = http.post(_PATH, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    http.post(f"{_PATH}/{answer.json()['id']}/cancel")
    gateway = stack.start_gateway(MAX_BATCH_BODY_BYTES="100000")
    with ending(gateway.server):
        answer = http.post(
            f"{gateway.url}{_PATH}", content=body, headers={"content-type": "application/json"}
        )
    assert answer.status_code == 413
    assert answer.json()["error"]["type"] == "request_too_large"


def test_a_batch_is_made_once_for_one_idempotency_key(http: httpx.Client, model: str) -> None:
    headers = {"idempotency-key": "monday"}
    body = {"requests": [request(model, "a")]}
    first = http.post(_PATH, json=body, headers=headers)
    again = http.post(_PATH, json=body, headers=headers)
    assert first.json()["id"] == again.json()["id"]
    other = http.post(_PATH, json={"requests": [request(model, "b")]}, headers=headers)
    assert other.status_code == 409
    assert other.json()["error"]["type"] == "conflict_error"


def test_results_come_from_the_gateways_own_address(http: httpx.Client, model: str) -> None:
    made = http.post(_PATH, json={"requests": [request(model, "a")]}).json()

    def ended() -> Any:
        batch = http.get(f"{_PATH}/{made['id']}").json()
        return batch if batch["processing_status"] == "ended" else None

    batch = eventually(ended, "the batch ends")
    assert batch["results_url"] == f"{_PATH}/{made['id']}/results"
    answer = http.get(batch["results_url"], headers={"accept": "application/binary"})
    assert answer.headers["content-type"] == "application/x-jsonl"
    (line,) = answer.content.splitlines()
    found = json.loads(line)
    assert found["custom_id"] == "a"
    assert found["result"]["message"]["usage"]["service_tier"] == "batch"


def test_results_take_no_memory_however_slowly_they_are_read(
    stack: Stack, sdk: anthropic.Anthropic
) -> None:
    model = add_model(stack, sdk, "batch/long-answers", engine_options={"text": "x" * 100_000})
    rows = 1000
    with ending(stack.start_worker(model)):
        requests = [request(model, f"row-{n}") for n in range(rows)]
        ended = wait_for_end(sdk, sdk.messages.batches.create(requests=requests))
    assert ended.results_url is not None
    gateway = stack.start_gateway()
    with (
        ending(gateway.server),
        httpx.Client(headers={"x-api-key": stack.key}, timeout=60) as http,
    ):
        process = psutil.Process(gateway.server.process.pid)
        http.get(f"{gateway.url}/v1/models")
        before = process.memory_info().rss
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak counts from here
        custom_ids = set()
        with http.stream("GET", f"{gateway.url}{ended.results_url}") as answer:
            lines = answer.iter_lines()
            custom_ids.add(json.loads(next(lines))["custom_id"])
            # Nobody reads on while others are answered, and nothing piles up.
            with httpx.Client(headers={"x-api-key": stack.key}) as other:
                for _ in range(100):
                    assert other.get(f"{gateway.url}/v1/models").is_success
            custom_ids.update(json.loads(line)["custom_id"] for line in lines)
        assert len(custom_ids) == rows
        status = Path(f"/proc/{process.pid}/status").read_text()
        (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
        # All of them together are twice as much.
        assert int(peak.split()[1]) * 1024 - before < 50 * 1024 * 1024


def test_bug_36_and_37_rows_are_billed_at_the_batch_price_each(
    sdk: anthropic.Anthropic, stack: Stack
) -> None:
    model = add_model(stack, sdk, "batch/priced")
    # A micro-unit for each token of an answer, and half of that in a batch.
    set_price(
        stack,
        model,
        input_micros_per_mtok=0,
        cached_input_micros_per_mtok=0,
        cache_write_micros_per_mtok=0,
        output_micros_per_mtok=1_000_000,
        batch_permille=500,
    )
    answers = {"long": script(tokens=200), "short": script(tokens=100), "bad": script(fail_at=0)}
    requests = [request(model, name, said) for name, said in answers.items()]
    with ending(stack.start_worker(model)):
        ended = wait_for_end(sdk, sdk.messages.batches.create(requests=requests))
    assert ended.request_counts.succeeded == 2
    with psycopg.connect(stack.layout.database_url) as connection:
        rows = connection.execute(
            "SELECT custom_id, lane, type, cost_micros FROM jobs_requestrecord"
            " WHERE batch_id = %s ORDER BY custom_id",
            [ended.id.removeprefix("msgbatch_")],
        ).fetchall()
        (total,) = connection.execute(
            "SELECT cost_micros FROM jobs_batch WHERE id = %s",
            [ended.id.removeprefix("msgbatch_")],
        ).fetchone() or (None,)
    assert rows == [
        ("bad", "batch", "batch", 0),
        ("long", "batch", "batch", 100),
        ("short", "batch", "batch", 50),
    ]
    assert total == 150
