"""What the vLLM backend does without an engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from inference.backends.vllm import VllmBackend, _ending
from inference.errors import ErrorCode, TandemError
from inference.events import Delta, Failed, Finished, FinishReason, Usage
from inference.request import GenerationRequest, Tool, ToolChoice, ToolMode
from tests.contracts.requests import collect, make_entry, make_request

USAGE = Usage(prompt_tokens=5, cached_tokens=0, output_tokens=3)
REQUEST = make_request("Hello.")
FORCED = msgspec.structs.replace(
    REQUEST,
    tools=(Tool(name="f", schema={"type": "object"}),),
    tool_choice=ToolChoice(mode=ToolMode.ANY),
)


@dataclass
class Ended:
    """An answer at its end."""

    called: bool = False
    full: bool = False
    thinking_tokens: int = 0

    def read(self, completion: object) -> Iterator[Delta]:
        yield from ()

    def is_cut(self) -> bool:
        return False

    def end(self) -> Iterator[Delta]:
        yield from ()


def ending(
    finish_reason: str | None,
    stop_reason: int | str | None = None,
    *,
    called: bool = False,
    is_cut: bool = False,
    request: GenerationRequest = REQUEST,
) -> Finished | Failed:
    completion = SimpleNamespace(finish_reason=finish_reason, stop_reason=stop_reason)
    return _ending(completion, USAGE, request, Ended(called), is_cut=is_cut)


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
    assert ending(finish_reason, stop_reason) == Finished(
        reason=reason, usage=USAGE, stop_sequence=stop_sequence
    )


@pytest.mark.parametrize(
    ("finish_reason", "stop_reason", "is_cut", "reason"),
    [
        ("stop", None, False, FinishReason.TOOL_USE),
        # Malformed to its end: it is repaired.
        ("stop", None, True, FinishReason.TOOL_USE),
        ("stop", "STOP", False, FinishReason.TOOL_USE),
        ("stop", "STOP", True, FinishReason.STOP_SEQUENCE),
        ("length", None, False, FinishReason.LENGTH),
        ("length", None, True, FinishReason.LENGTH),
        # Broken off after the one call that was wanted.
        (None, None, False, FinishReason.TOOL_USE),
        (None, None, True, FinishReason.TOOL_USE),
    ],
)
def test_it_says_that_a_tool_is_to_be_used(
    finish_reason: str | None, stop_reason: str | None, is_cut: bool, reason: FinishReason
) -> None:
    ended = ending(finish_reason, stop_reason, called=True, is_cut=is_cut)

    assert isinstance(ended, Finished)
    assert ended.reason is reason


def test_it_fails_an_answer_that_had_to_call_and_did_not() -> None:
    ended = ending("stop", request=FORCED)

    assert ended == Failed(
        code=ErrorCode.ENGINE_FAILED,
        message="the model called no tool, although it was told to",
    )


def test_it_blames_a_schema_that_the_engine_could_not_compile() -> None:
    completion = SimpleNamespace(finish_reason="error", stop_reason=None)
    usage = Usage(prompt_tokens=5, cached_tokens=0, output_tokens=0)

    ended = _ending(completion, usage, FORCED, Ended(), is_cut=False)

    assert isinstance(ended, Failed)
    assert ended.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("finish_reason", ["abort", "error"])
def test_it_fails_an_answer_that_the_engine_gave_up(finish_reason: str) -> None:
    ended = ending(finish_reason)

    assert isinstance(ended, Failed)
    assert ended.code is ErrorCode.INTERNAL


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
    with pytest.raises(TandemError, match="the engine is not running"):
        await backend.count(make_request("Hello."))


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
