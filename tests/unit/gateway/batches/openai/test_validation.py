"""From a file to rows, or to a batch that says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from gateway.batches.openai.validation import validate
from gateway.batches.rows import Terms
from gateway.image_source import ImageSource
from gateway.keys import Principal
from inference.catalogue import load_catalogue
from inference.models import Model
from inference.request import ImagePart
from jobs import files
from jobs.models import Batch, StoredFile, Work
from jobs.packing import unpack_request
from jobs.pricing import load_prices
from tests.unit.gateway.batches.openai.conftest import Store
from tests.work import new_batch

pytestmark = pytest.mark.django_db


def line(custom_id: str, **fields: Any) -> bytes:
    messages = [{"role": "user", "content": f"Hello {custom_id}"}]
    body = {"model": "one", "max_tokens": 10, "messages": messages} | fields
    url = "/v1/messages"
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}).encode()


def load_nothing(sources: Sequence[ImageSource]) -> Future[list[ImagePart]]:
    raise AssertionError("there are no images")


def validated(file: StoredFile | None, principal: Principal) -> Batch:
    """Return what became of a batch of a file."""
    for name in ("one", "two"):
        Model.objects.create(id=name, backend="scripted", context_tokens=1000)
    batch = new_batch(endpoint="/v1/messages", input_file=file)
    terms = Terms(
        batch_id=str(batch.id),
        principal=principal,
        created_at=batch.created_at,
        deadline_at=batch.expires_at,
        catalogue=load_catalogue(),
        prices=load_prices(),
        cache_salt="salt",
    )
    validate(batch, terms, load_nothing)
    batch.refresh_from_db()
    return batch


def test_a_good_file_becomes_rows(principal: Principal, store: Store) -> None:
    content = b"\xef\xbb\xbf" + line("a") + b"\r\n\r\n" + line("b") + b"\n"
    batch = validated(store(content), principal)
    assert (batch.status, batch.total, batch.failed, batch.model) == ("in_progress", 2, 0, "one")
    rows = Work.objects.filter(batch=batch).order_by("line")
    assert [(row.line, row.custom_id, row.state) for row in rows] == [
        (1, "a", "pending"),
        (3, "b", "pending"),
    ]
    request = unpack_request(bytes(rows[0].request))
    assert request.model == "one"
    assert "Hello a" in str(request.messages)


@pytest.mark.parametrize(
    ("content", "errors"),
    [
        (b"", [("empty_file", None)]),
        (b"\xef\xbb\xbf\r\n", [("empty_file", None)]),
        (b"[1]\nnull\n" + line("a"), [("invalid_json_line", 1), ("invalid_json_line", 2)]),
        (line("a") + b"\n" + line("a"), [("duplicate_custom_id", 2)]),
        (line("a") + b"\n" + line("b", model="two"), [("model_mismatch", 2)]),
        (line("a").replace(b"/v1/messages", b"/v1/x"), [("url_mismatch", 1)]),
        (line("a", stream=True), [("unsupported_parameter", 1)]),
        (line("a", model="three"), [("model_not_found", 1)]),
        (
            line("a") + b"\n\n" + line("\xff").replace(b"\\u00ff", b"\xff"),
            [("invalid_json_line", 3)],
        ),
    ],
)
def test_bug_40_a_bad_file_fails_its_batch_by_line(
    principal: Principal, store: Store, content: bytes, errors: list[tuple[str, int | None]]
) -> None:
    batch = validated(store(content), principal)
    assert batch.status == "failed"
    assert [(error["code"], error.get("line")) for error in batch.errors] == errors
    assert batch.ended_at is not None
    assert (batch.total, Work.objects.count()) == (0, 0)


def test_a_model_that_the_key_may_not_use_fails_the_batch(store: Store) -> None:
    narrow = Principal(
        key_id="k", key_name="", team_id=1, team_name="", allowed_models=frozenset({"two"})
    )
    batch = validated(store(line("a")), narrow)
    (error,) = batch.errors
    assert error["message"] == "this API key may not use the model 'one'"


def test_what_a_request_says_is_its_rows_matter(principal: Principal, store: Store) -> None:
    content = b"\n".join([line("a"), line("b", temperature="hot"), line("c", messages=[])])
    batch = validated(store(content), principal)
    assert (batch.status, batch.total, batch.failed) == ("in_progress", 3, 2)
    bad = Work.objects.get(custom_id="b")
    assert (bad.state, bad.outcome, bad.error_code) == ("done", "failed", "invalid_request")
    assert bad.error_message.startswith("temperature: ")


def test_a_batch_without_a_good_row_goes_to_its_end(principal: Principal, store: Store) -> None:
    batch = validated(store(line("b", temperature="hot")), principal)
    assert (batch.status, batch.total, batch.failed) == ("finalizing", 1, 1)


def test_a_file_that_is_gone_fails_its_batch(principal: Principal, store: Store) -> None:
    batch = validated(None, principal)
    assert (batch.status, batch.errors[0]["code"]) == ("failed", "file_not_found")


def test_bytes_that_are_gone_fail_their_batch(principal: Principal, store: Store) -> None:
    file = store(line("a"))
    files._forget_bytes([file.name])
    batch = validated(file, principal)
    assert (batch.status, batch.errors[0]["code"]) == ("failed", "file_not_found")
