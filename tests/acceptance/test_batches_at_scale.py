"""Batches of many short requests against a real model in vLLM, by the SDKs of both dialects."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import anthropic
import openai
import pytest
from anthropic.types.messages.batch_create_params import Request
from openai.types import Batch

from tests.acceptance.stack import Gateway, Stack, ending, eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.engine]

T = TypeVar("T")

# Only how long to wait before giving up: the engine may have little of the machine.
_PATIENCE_S = 1_800
_MAX_TOKENS = 4
# A release is tried with BATCH_ROWS=1000.
_ROWS = int(os.environ.get("BATCH_ROWS", "150"))


@pytest.fixture(scope="module", autouse=True)
def clerk(stack: Stack) -> Iterator[None]:
    """Have somebody validate batches and write their results."""
    with ending(stack.start_clerk()):
        yield


@pytest.fixture
def api(stack: Stack, gateway: Gateway) -> Iterator[openai.OpenAI]:
    """Return OpenAI's own client, of the shared gateway."""
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=stack.key) as client:
        yield client


def names(count: int) -> list[str]:
    return [f"row-{number}" for number in range(count)]


def check_once(found: Iterable[str], count: int) -> None:
    """Check that so many rows have come, each exactly once."""
    assert Counter(found) == Counter(names(count))


def wait(look: Callable[[], T], over: Callable[[T], bool], what: str) -> T:
    """Look until it is over, and return what was seen last."""
    seen: list[T] = []

    def has_ended() -> bool:
        seen[:] = [look()]
        return over(seen[0])

    eventually(has_ended, what, _PATIENCE_S)
    return seen[0]


def run_openai(api: openai.OpenAI, model: str, count: int) -> None:
    """Have a file of requests answered, and check that its output has all of the answers."""
    rows = [
        {
            "custom_id": name,
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": model,
                "max_tokens": _MAX_TOKENS,
                "messages": [{"role": "user", "content": f"Tell me about {name}."}],
            },
        }
        for name in names(count)
    ]
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    file = api.files.create(file=("rows.jsonl", data), purpose="batch")
    made = api.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )

    def is_over(batch: Batch) -> bool:
        return batch.status in ("completed", "failed", "expired", "cancelled")

    batch = wait(lambda: api.batches.retrieve(made.id), is_over, f"the batch {made.id} ends")
    assert batch.status == "completed", batch.errors
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (count, 0)
    assert batch.error_file_id is None
    assert batch.output_file_id is not None
    content = api.files.content(batch.output_file_id).text
    lines = [json.loads(line) for line in content.splitlines()]
    check_once((line["custom_id"] for line in lines), count)
    tokens = [line["response"]["body"]["usage"]["completion_tokens"] for line in lines]
    assert all(1 <= each <= _MAX_TOKENS for each in tokens)
    assert batch.usage is not None
    assert batch.usage.output_tokens == sum(tokens)


def run_anthropic(sdk: anthropic.Anthropic, model: str, count: int) -> None:
    """Have a message batch answered, and check that its results have all of the answers."""
    requests: list[Request] = [
        {
            "custom_id": name,
            "params": {
                "model": model,
                "max_tokens": _MAX_TOKENS,
                "messages": [{"role": "user", "content": f"Tell me about {name}."}],
            },
        }
        for name in names(count)
    ]
    made = sdk.messages.batches.create(requests=requests)
    batch = wait(
        lambda: sdk.messages.batches.retrieve(made.id),
        lambda batch: batch.processing_status == "ended",
        f"the batch {made.id} ends",
    )
    assert batch.request_counts.succeeded == count
    results = list(sdk.messages.batches.results(batch.id))
    check_once((line.custom_id for line in results), count)
    for line in results:
        assert line.result.type == "succeeded"
        assert 1 <= line.result.message.usage.output_tokens <= _MAX_TOKENS


def test_the_openai_sdk_gets_every_row_once(api: openai.OpenAI, real_model: str) -> None:
    run_openai(api, real_model, _ROWS)


def test_the_anthropic_sdk_gets_every_row_once(sdk: anthropic.Anthropic, real_model: str) -> None:
    run_anthropic(sdk, real_model, 60)
