"""What is answered about work that runs and that has ended is what the document tells.

A fuzzer knows the ids of none: here every answer to a client goes through the document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from jsonschema_rs import Draft202012Validator

from tests.acceptance.client import ENDLESS, script
from tests.acceptance.stack import Gateway, Stack, ending, eventually
from tests.schemas import Document, close_answers

pytestmark = pytest.mark.acceptance

HELLO = [{"role": "user", "content": "hello"}]
WRONG = [{"role": "user", "content": [{"type": "smell"}]}]


@pytest.fixture(scope="module", autouse=True)
def _clerk(stack: Stack) -> Iterator[None]:
    """Have somebody validate batches and end them."""
    with ending(stack.start_clerk()):
        yield


@pytest.fixture(scope="module")
def document(gateway: Gateway) -> Document:
    document: Document = httpx.get(f"{gateway.url}/openapi.json").json()
    return close_answers(document)


@pytest.fixture
def http(stack: Stack, gateway: Gateway, document: Document) -> Iterator[httpx.Client]:
    """Return a client that takes no answer which the document does not tell."""
    published = schemathesis.openapi.from_dict(document)

    def check(response: httpx.Response) -> None:
        response.read()
        request = response.request
        operation = published.find_operation_by_path(request.method, request.url.path)
        assert operation is not None, f"{request.method} {request.url.path} is not told"
        assert str(response.status_code) in operation.definition.raw["responses"], response.text
        operation.validate_response(response)

    # A form is otherwise gone once it is sent.
    hooks: dict[str, Any] = {"request": [httpx.Request.read], "response": [check]}
    headers = {"x-api-key": stack.key}
    with httpx.Client(
        base_url=gateway.url, headers=headers, timeout=60, event_hooks=hooks
    ) as client:
        yield client


def until(http: httpx.Client, path: str, field: str, *ends: str) -> dict[str, Any]:
    """Wait until a field of what is at a path says that it has ended; return what is there."""

    def look() -> dict[str, Any] | None:
        shown: dict[str, Any] = http.get(path).json()
        return shown if shown[field] in ends else None

    found = eventually(look, f"{path} ends")
    assert found is not None
    return found


def test_batches_of_files(http: httpx.Client, model: str) -> None:
    bodies = [{"model": model, "messages": each} for each in (HELLO, WRONG)]
    lines = [
        {"custom_id": f"{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        for n, body in enumerate(bodies)
    ]
    for content, end in ((lines, "completed"), (["no row"], "failed")):
        data = "".join(json.dumps(line) + "\n" for line in content)
        if end == "failed":
            data = '{"custom_id": 5}\n'
        file = http.post(
            "/v1/files", files={"file": ("rows.jsonl", data)}, data={"purpose": "batch"}
        ).json()
        wanted = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
        made = http.post("/v1/batches", json=wanted | {"input_file_id": file["id"]}).json()
        batch = until(http, f"/v1/batches/{made['id']}", "status", "completed", "failed")
        assert batch["status"] == end
        for name in ("input_file_id", "output_file_id", "error_file_id"):
            if batch[name] is not None:
                assert http.get(f"/v1/files/{batch[name]}").is_success
                assert http.get(f"/v1/files/{batch[name]}/content").is_success
        assert http.post(f"/v1/batches/{made['id']}/cancel").status_code == 409
    assert http.get("/v1/files", params={"limit": 2}).json()["data"]
    assert len(http.get("/v1/batches").json()["data"]) >= 2
    part = http.get(f"/v1/files/{file['id']}/content", headers={"range": "bytes=0-1"})
    beyond = http.get(f"/v1/files/{file['id']}/content", headers={"range": "bytes=99-"})
    assert (part.status_code, beyond.status_code) == (206, 416)
    assert http.delete(f"/v1/files/{file['id']}").is_success


def test_batches_that_come_with_their_requests(http: httpx.Client, model: str) -> None:
    rows = [
        {"custom_id": "a", "body": {"model": model, "messages": HELLO}},
        {"body": {"model": model, "input": script(fail_at=0)}},
    ]
    made = http.post("/v1/batches", json={"requests": rows}).json()
    path = f"/v1/batches/{made['id']}"
    http.get(f"{path}/results")
    until(http, path, "status", "completed", "failed")
    assert len(http.get(f"{path}/results").json()["results"]) == 2
    assert http.get(f"{path}/results.jsonl").is_success
    assert http.post(f"{path}/cancel").is_success
    assert http.get("/v1/batches").json()["items"]


def test_message_batches(http: httpx.Client, model: str) -> None:
    rows = [
        {"custom_id": "a", "params": {"model": model, "max_tokens": 9, "messages": HELLO}},
        {"custom_id": "b", "params": {"model": model}},
    ]
    made = http.post("/v1/messages/batches", json={"requests": rows}).json()
    path = f"/v1/messages/batches/{made['id']}"
    until(http, path, "processing_status", "ended")
    assert http.get(f"{path}/results").is_success
    assert http.post(f"{path}/cancel").is_success
    assert http.get("/v1/messages/batches").json()["data"]
    assert http.delete(path).is_success


def test_responses_in_the_background(http: httpx.Client, model: str) -> None:
    stream = http.post("/v1/streams", json={"name": "nightly"}).json()
    asked = {"model": model, "background": True}
    told = [
        ("completed", "hello", {"custom_id": "a"}),
        ("failed", script(fail_at=0), {}),
    ]
    for status, content, metadata in told:
        made = http.post("/v1/responses", json=asked | {"input": content, "metadata": metadata})
        path = f"/v1/responses/{made.json()['id']}"
        assert until(http, path, "status", "completed", "failed")["status"] == status
        assert http.get(f"{path}/input_items").json()["data"]
        assert http.post(f"{path}/cancel").is_success
    named = {"metadata": {"stream_id": stream["id"]}}
    endless = http.post("/v1/responses", json=asked | {"input": ENDLESS} | named).json()
    path = f"/v1/responses/{endless['id']}"
    assert http.post(f"{path}/cancel").json()["status"] == "cancelled"
    assert http.get("/v1/responses", params=named["metadata"]).json()["data"]
    assert http.get("/v1/responses/events").json()["data"]
    assert http.patch(f"/v1/streams/{stream['id']}", json={"status": "cancelled"}).is_success
    shut = http.patch(f"/v1/streams/{stream['id']}", json={"status": "archived"})
    assert shut.status_code == 409
    assert http.get("/v1/streams").json()["items"]
    assert http.delete(path).is_success


def test_a_response_that_is_followed(http: httpx.Client, model: str, document: Document) -> None:
    asked = {"model": model, "input": "hello", "background": True, "stream": True}
    first = http.post("/v1/responses", json=asked).text
    frames = [frame for frame in first.split("\n\n") if frame.startswith("event: ")]
    events = [json.loads(frame.partition("\ndata: ")[2]) for frame in frames]
    path = f"/v1/responses/{events[0]['response']['id']}"
    again = http.get(path, params={"stream": "true", "starting_after": "1"})
    assert again.text.endswith(frames[-1] + "\n\n")
    content = document["paths"]["/v1/responses/{response_id}"]["get"]["responses"]["200"]["content"]
    event = content["text/event-stream"]["schema"]["properties"]["data"]["contentSchema"]
    validator = Draft202012Validator(event | {"components": document["components"]})
    for each in events:
        validator.validate(each)
    assert http.get(path, params={"starting_after": "x"}).status_code == 400
