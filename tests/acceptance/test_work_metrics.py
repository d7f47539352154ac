"""Work and batches in `/metrics`, as they come and go."""

from __future__ import annotations

import httpx
import openai
import pytest

from tests.acceptance.client import script
from tests.acceptance.stack import Gateway, Stack, ending, eventually

pytestmark = pytest.mark.acceptance


def metrics(gateway: Gateway, model: str) -> set[str]:
    """Return what is said of a model's work."""
    lines = httpx.get(f"{gateway.url}/metrics").text.splitlines()
    return {line for line in lines if line.startswith("tandem_work_") and f'"{model}"' in line}


def test_background_responses_are_seen_waiting_and_done(stack: Stack, gateway: Gateway) -> None:
    model = stack.add_model("vendor/Measured")
    waiting = f'tandem_work_pending{{lane="background",model="{model}"}} 2.0'
    done = f'tandem_work_ended_total{{model="{model}",outcome="completed"}} 2.0'
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=stack.key) as api:
        eventually(lambda: model in {each.id for each in api.models.list()}, "the model is known")
        for _ in range(2):
            api.responses.create(model=model, input=script(text="Hi"), background=True)
    seen = metrics(gateway, model)
    assert waiting in seen
    assert any(line.startswith("tandem_work_oldest_wait_seconds") for line in seen)
    with ending(stack.start_worker(model)):
        eventually(lambda: done in metrics(gateway, model), "both are counted as done")
    assert not any(line.startswith("tandem_work_pending") for line in metrics(gateway, model))
