"""What engines measure in `/metrics`, as they come, work and go."""

from __future__ import annotations

import anthropic
import httpx
import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from anthropic.types.messages.batch_create_params import Request
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.client import script
from tests.acceptance.stack import Gateway, Stack, ending, eventually

pytestmark = pytest.mark.acceptance


def families(gateway: Gateway) -> list[Metric]:
    """Return everything that the gateway tells."""
    return list(text_string_to_metric_families(httpx.get(f"{gateway.url}/metrics").text))


def of_engine(gateway: Gateway, model: str) -> dict[str, float]:
    """Return what the model's one engine says, by name and what labels have beside the engine."""
    found: dict[str, float] = {}
    for family in families(gateway):
        for name, labels, value, *_ in family.samples:
            if labels.pop("model", "") == model and labels.pop("engine", ""):
                found["/".join([name, *(labels[key] for key in sorted(labels))])] = value
    return found


def asking(model: str, said: str) -> MessageCreateParamsNonStreaming:
    """Return what a request of one turn has."""
    return {"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": said}]}


def test_lanes_are_measured_apart_and_go_with_their_engine(stack: Stack, gateway: Gateway) -> None:
    model = stack.add_model("vendor/Engine-measured")
    expected = {
        "tandem_engine_tokens_total/output/realtime": 3,
        "tandem_engine_queue_time_seconds_count/realtime": 1,
        "tandem_engine_time_to_first_token_seconds_count/realtime": 1,
        "tandem_engine_time_per_output_token_seconds_count/realtime": 1,
        "tandem_engine_permits/realtime": 0,
        "tandem_engine_tokens_total/output/batch": 2,
        "tandem_engine_time_to_first_token_seconds_count/batch": 1,
        "tandem_engine_tokens_total/output/flex": 0,
        "tandem_engine_preemptions_total": 0,
        "tandem_engine_wasted_tokens_total/preemption": 0,
    }
    with (
        ending(stack.start_clerk()),
        anthropic.Anthropic(base_url=gateway.url, api_key=stack.key) as sdk,
    ):
        with ending(stack.start_worker(model)):
            gateway.wait_for_model(model)

            sdk.messages.create(**asking(model, script(text="a b c")))
            row = Request(custom_id="one", params=asking(model, script(text="a b")))
            batch = sdk.messages.batches.create(requests=[row])
            eventually(
                lambda: expected.items() <= of_engine(gateway, model).items(),
                "both are measured in their lanes",
            )
            eventually(
                lambda: sdk.messages.batches.retrieve(batch.id).processing_status == "ended",
                "the batch ends",
            )
            seen = of_engine(gateway, model)
            assert seen["tandem_engine_permits_kept"] >= 1
            assert "tandem_engine_queue_time_seconds_count/batch" not in seen
        eventually(lambda: not of_engine(gateway, model), "the engine is gone, and all of it")
