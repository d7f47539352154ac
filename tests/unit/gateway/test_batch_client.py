"""What of the caller's side needs no gateway; the rest is in tests/acceptance."""

from __future__ import annotations

from pathlib import Path

import pytest
from openai.types import Batch

from gateway.batch_client import BatchClient, BatchClientError, first_url, summary

LINE = '{"custom_id": "1", "method": "POST", "url": "/v1/responses", "body": {}}\n'


def test_the_endpoint_is_that_of_the_first_request(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(f"\ufeff\r\n{LINE}", encoding="utf-8")
    assert first_url(path) == "/v1/responses"


@pytest.mark.parametrize(("text", "said"), [("", "is empty"), ("[1]\n", "the first line is no")])
def test_a_file_without_a_first_request_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text)
    with pytest.raises(BatchClientError, match=said):
        first_url(path)


def test_no_key_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(BatchClientError, match="TANDEM_API_KEY"):
        BatchClient("http://127.0.0.1:9", "")


def test_a_gateway_that_is_not_there_is_named() -> None:
    client = BatchClient("http://127.0.0.1:9", "key")
    client._openai.max_retries = 0
    with pytest.raises(BatchClientError, match=r"http://127\.0\.0\.1:9 cannot be reached"):
        client.cancel("batch_1")


def test_a_batch_is_summed_up() -> None:
    batch = Batch.model_validate(
        {
            "id": "batch_1",
            "object": "batch",
            "endpoint": "/v1/responses",
            "input_file_id": "file-1",
            "completion_window": "24h",
            "status": "in_progress",
            "created_at": 1,
            "request_counts": {"total": 9, "completed": 3, "failed": 2},
            "usage": {
                "input_tokens": 1200,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 30,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 1230,
            },
            "cost_micros": 1500,
        }
    )
    assert summary(batch) == "in_progress, 2 failed, 1,200+30 tokens, cost 0.001500"
