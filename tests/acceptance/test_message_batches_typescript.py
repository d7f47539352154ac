"""Message batches by Anthropic's TypeScript SDK: what it sends is taken, what it gets fits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.client import script
from tests.acceptance.programs import Program
from tests.acceptance.stack import Gateway, Stack, ending
from tests.acceptance.test_message_batches import request

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module", autouse=True)
def _clerk(stack: Stack) -> Iterator[None]:
    """Have somebody end batches."""
    with ending(stack.start_clerk()):
        yield


def test_a_batch_runs_and_every_request_has_its_result(typescript: Program, model: str) -> None:
    requests = [
        *(request(model, f"row-{n}", script(text=f"answer {n}")) for n in range(5)),
        request(model, "bad", temperature=9),
    ]
    ran = typescript.run("runBatch", requests)
    assert ran["made"]["processing_status"] == "in_progress"
    counts = ran["ended"]["request_counts"]
    assert (counts["succeeded"], counts["errored"], counts["processing"]) == (5, 1, 0)
    results = {line["custom_id"]: line["result"] for line in ran["results"]}
    assert len(results) == len(ran["results"]) == len(requests)
    for n in range(5):
        message = results[f"row-{n}"]["message"]
        assert message["content"][0]["text"] == f"answer {n}"
        assert message["usage"]["service_tier"] == "batch"
    assert results["bad"]["type"] == "errored"
    assert results["bad"]["error"]["error"]["type"] == "invalid_request_error"
    assert ran["made"]["id"] in ran["listed"]
    assert ran["deleted"] == {"id": ran["made"]["id"], "type": "message_batch_deleted"}


def test_a_batch_is_cancelled(typescript: Program, gateway: Gateway, stack: Stack) -> None:
    # No engine runs it.
    name = stack.add_model("vendor/Called-Off")
    gateway.wait_for_model(name, state="missing", engines=0)
    ran = typescript.run("cancelBatch", [request(name, "a"), request(name, "b")])
    assert ran["cancelled"]["cancel_initiated_at"] is not None
    assert ran["ended"]["request_counts"]["canceled"] == 2
    assert [line["result"] for line in ran["results"]] == [{"type": "canceled"}] * 2


def test_an_unknown_batch_is_not_found(typescript: Program) -> None:
    error = typescript.fail("retrieveBatch", "msgbatch_0198c5a0-0000-7000-8000-000000000001")
    assert (error["name"], error["status"], error["type"]) == (
        "NotFoundError",
        404,
        "not_found_error",
    )
    assert error["requestID"].startswith("req_")
