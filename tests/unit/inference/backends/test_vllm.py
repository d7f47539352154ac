"""What the vLLM backend does without an engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from inference.backends.vllm import VllmBackend, _ending
from inference.errors import ErrorCode, TandemError
from inference.events import Failed, Finished, FinishReason, Usage
from tests.contracts.requests import collect, make_entry, make_request

USAGE = Usage(prompt_tokens=5, cached_tokens=0, output_tokens=3)


@pytest.mark.parametrize(
    ("finish_reason", "stop_reason", "reason", "stop_sequence"),
    [
        ("length", None, FinishReason.LENGTH, None),
        ("stop", None, FinishReason.END, None),
        ("stop", 128009, FinishReason.END, None),
        ("stop", "\n\nHuman:", FinishReason.STOP_SEQUENCE, "\n\nHuman:"),
    ],
)
def test_it_says_why_an_answer_ended(
    finish_reason: str,
    stop_reason: int | str | None,
    reason: FinishReason,
    stop_sequence: str | None,
) -> None:
    completion = SimpleNamespace(finish_reason=finish_reason, stop_reason=stop_reason)

    assert _ending(completion, USAGE) == Finished(
        reason=reason, usage=USAGE, stop_sequence=stop_sequence
    )


@pytest.mark.parametrize("finish_reason", ["abort", "error"])
def test_it_fails_an_answer_that_the_engine_gave_up(finish_reason: str) -> None:
    ending = _ending(SimpleNamespace(finish_reason=finish_reason, stop_reason=None), USAGE)

    assert isinstance(ending, Failed)
    assert ending.code is ErrorCode.INTERNAL


@pytest.mark.parametrize("weights", ["", "nowhere"])
async def test_it_names_the_weights_folder_that_is_not_there(tmp_path: Path, weights: str) -> None:
    backend = VllmBackend(make_entry(backend="vllm", weights=weights), tmp_path)

    with pytest.raises(TandemError, match=f"there is no weights folder {tmp_path / weights}"):
        await backend.start()


async def test_it_refuses_work_while_it_does_not_run() -> None:
    backend = VllmBackend(make_entry(backend="vllm"), Path())

    events = await collect(backend, make_request("Hello."))

    assert events == [Failed(code=ErrorCode.ENGINE_FAILED, message="the engine is not running")]
    assert backend.stats().running == 0
    assert backend.failure() is None


async def test_it_may_be_stopped_although_it_never_started() -> None:
    await VllmBackend(make_entry(backend="vllm"), Path()).stop()


def test_it_imports_no_vllm_before_an_engine_starts() -> None:
    program = """
import sys, django
django.setup()
import inference.backends.registry
print([name for name in ("vllm", "torch", "transformers") if name in sys.modules])
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"
