"""sference's inline batches: by its own SDK and command line, and by plain HTTP."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from sference_sdk import ApiError, Batch, SferenceClient

from tests.acceptance.client import script
from tests.acceptance.stack import Gateway, Stack, ending, eventually
from tests.acceptance.teams import make_member

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module", autouse=True)
def clerk(stack: Stack) -> Iterator[None]:
    """Have somebody end batches."""
    with ending(stack.start_clerk()):
        yield


@pytest.fixture
def sference(stack: Stack, gateway: Gateway) -> Iterator[SferenceClient]:
    """Return sference's own client, of the shared gateway."""
    with SferenceClient(base_url=gateway.url, api_key=stack.key) as client:
        yield client


@pytest.fixture
def http(stack: Stack, gateway: Gateway) -> Iterator[httpx.Client]:
    """Return a client that hides nothing."""
    headers = {"authorization": f"Bearer {stack.key}"}
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=60) as client:
        yield client


def add_model(stack: Stack, http: httpx.Client, name: str) -> str:
    """Put a model into the catalogue, and wait until the gateway knows it."""
    stack.add_model(name)
    path = f"/v1/models/{name}"
    eventually(lambda: http.get(path).is_success, f"the gateway knows {name}")
    return name


def chat(model: str, custom_id: str | None, content: str = "hello", **fields: Any) -> Any:
    body = {"model": model, "messages": [{"role": "user", "content": content}]} | fields
    return {"custom_id": custom_id, "body": body}


def wait(sference: SferenceClient, batch: Batch) -> Batch:
    return sference.wait_for_completion(batch.id, poll_interval=0.05, timeout=60)


@pytest.mark.every_route
def test_a_batch_runs_and_every_row_has_its_result_once(
    sference: SferenceClient, model: str
) -> None:
    rows = [chat(model, f"row-{n}", script(text=f"answer {n}")) for n in range(20)]
    made = sference.submit_batch(requests=rows)
    assert str(uuid.UUID(made.id)) == made.id
    assert (made.request_count, made.window) == (20, "24h")
    ended = wait(sference, made)
    assert ended.status == "completed"
    assert ended.completed_at is not None
    assert ended.total_completion_tokens == 40
    assert ended.total_tokens == ended.total_prompt_tokens + 40
    results = sference.get_results(made.id)
    assert (results.batch_id, results.status) == (made.id, "completed")
    assert len(results.rows()) == 20
    found = results.index_by_custom_id()
    for n in range(20):
        assert found[f"row-{n}"].completion_text == f"answer {n}"
    lines = io.BytesIO()
    sference.download_results_jsonl(made.id, lines)
    assert [json.loads(line) for line in lines.getvalue().splitlines()] == results.results


@pytest.mark.every_route
def test_rows_may_have_the_shape_of_responses_and_no_name(
    sference: SferenceClient, model: str
) -> None:
    body = {"model": model, "input": script(text="so"), "max_output_tokens": 50}
    made = sference.submit_batch(requests=[{"body": body}, {"body": body}])
    assert wait(sference, made).status == "completed"
    rows = sference.get_results(made.id).rows()
    assert [(row.custom_id, row.completion_text) for row in rows] == [(None, "so"), (None, "so")]


def test_there_are_no_results_before_the_end(
    sference: SferenceClient, stack: Stack, http: httpx.Client
) -> None:
    model = add_model(stack, http, "inline/nobody-serves-it")
    made = sference.submit_batch(requests=[chat(model, "a")])
    assert made.status == "running"
    results = sference.get_results(made.id)
    assert (results.results, results.completed_at, results.output_url) == (None, None, None)
    assert http.get(f"/v1/batches/{made.id}/results.jsonl").status_code == 400
    assert sference.cancel_batch(made.id).status in ("running", "cancelled")
    assert wait(sference, made).status == "cancelled"
    (row,) = sference.get_results(made.id).rows()
    assert (row.status, row.result_json) == ("cancelled", None)
    # Again, it is harmless.
    assert sference.cancel_batch(made.id).status == "cancelled"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda m: [chat(m, "a"), chat("nobody", "b")], "requests[1] (custom_id 'b'): model 'nob"),
        (lambda m: [{"body": {"model": m}}], "requests[0]: messages: Field required"),
        (lambda m: [chat(m, "a", background=True)], "requests[0] (custom_id 'a'): background: "),
        (lambda m: [chat(m, "a", stream=True)], "requests[0] (custom_id 'a'): stream: "),
        (lambda m: [chat(m, "a"), chat("inline/other", "b")], "requests[1]: body.model is "),
        (lambda m: [chat(m, "a"), chat(m, "a")], "requests: the custom_id 'a' is used more than"),
        (lambda m: [chat(m, "a") | {"url": "/"}], "requests.0.url: Extra inputs are not permitted"),
        (lambda m: [], "requests: Expected a list with at least 1 item"),
    ],
)
def test_one_bad_row_is_named_and_nothing_is_queued(
    http: httpx.Client, model: str, stack: Stack, rows: Any, message: str
) -> None:
    if "inline/other" in str(rows(model)):
        add_model(stack, http, "inline/other")
    before = http.get("/v1/batches").json()["items"]
    answer = http.post("/v1/batches", json={"requests": rows(model), "window": "24h"})
    assert answer.status_code == 400
    said = answer.json()
    assert said["detail"].startswith(message)
    assert said["error"]["message"] == said["detail"]
    assert said["status_code"] == 400
    assert http.get("/v1/batches").json()["items"] == before


def test_a_batch_is_listed_where_its_clients_look(
    sference: SferenceClient, model: str, stack: Stack, gateway: Gateway
) -> None:
    made = sference.submit_batch(requests=[chat(model, "a")])
    assert sference.list_batches().items[0].id == made.id
    url = f"{gateway.url}/v1"
    with openai.OpenAI(base_url=url, api_key=stack.key, max_retries=0) as api:
        assert made.id not in {batch.id for batch in api.batches.list()}
        with pytest.raises(openai.NotFoundError):
            api.batches.retrieve(f"batch_{made.id}")


def test_another_teams_batch_is_not_there(
    sference: SferenceClient, stack: Stack, gateway: Gateway, model: str
) -> None:
    made = sference.submit_batch(requests=[chat(model, "a")])
    key = make_member(stack).key
    with SferenceClient(base_url=gateway.url, api_key=key) as spy:
        for call in (spy.get_batch, spy.cancel_batch, spy.get_results):
            with pytest.raises(ApiError, match="404"):
                call(made.id)
        assert spy.list_batches().items == []


def test_the_command_line_submits_waits_and_prints(
    stack: Stack, gateway: Gateway, model: str, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"content": "hello", "custom_id": "mine"}\n')

    def cli(*arguments: str) -> str:
        environment = {
            "SFERENCE_BASE_URL": gateway.url,
            "SFERENCE_API_KEY": stack.key,
            "HOME": str(tmp_path),
        }
        command = [sys.executable, "-c", "from sference_cli.main import app; app()", "batch"]
        return subprocess.run(
            [*command, *arguments],
            env=os.environ | environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    asked = ("--input-file", str(rows), "--model", model)
    (line,) = cli("stream", *asked, "--poll-interval", "0.1").splitlines()
    assert json.loads(line)["custom_id"] == "mine"
    assert json.loads(line)["status"] == "completed"
    made = json.loads(cli("submit", *asked, "--json"))
    waited = json.loads(cli("wait", "--batch-id", made["id"], "--json"))
    assert (waited["id"], waited["status"]) == (made["id"], "completed")
    assert json.loads(cli("status", "--batch-id", made["id"], "--json")) == waited
    assert made["id"] in cli("list")
    out = tmp_path / "results.jsonl"
    cli("download-results", "--batch-id", made["id"], "--out", str(out))
    assert json.loads(out.read_text())["custom_id"] == "mine"
