"""What only a real engine can show. Run with the default model."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from inference.backends.vllm import VllmBackend
from inference.errors import ErrorCode, TandemError
from inference.events import Failed, Finished, FinishReason
from tests.conftest import Eventually
from tests.contracts.conftest import Subject
from tests.contracts.requests import collect, make_entry, make_request, text_of

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="session"),
    # An engine that fails leaves it to the collector to close its sockets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_LONG = "The sea is wide and the road is long. " * 40


def _engine_processes() -> set[psutil.Process]:
    """Return vLLM's processes below this one; Python's own helper outlives them."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "resource_tracker" not in " ".join(process.cmdline()):
                found.add(process)
    return found


async def test_it_answers_rightly(vllm: Subject) -> None:
    events = await collect(vllm.backend, make_request("What is the capital of France?"))

    assert "Paris" in text_of(events)
    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.END


async def test_it_finds_a_prompt_again_in_its_cache(vllm: Subject) -> None:
    request = make_request(_LONG, cache_salt="one team")
    *_, first = await collect(vllm.backend, request)
    *_, second = await collect(vllm.backend, request)

    assert isinstance(first, Finished)
    assert isinstance(second, Finished)
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens > 0


async def test_it_keeps_the_caches_of_two_salts_apart(vllm: Subject) -> None:
    await collect(vllm.backend, make_request(_LONG, cache_salt="owner"))
    *_, finished = await collect(vllm.backend, make_request(_LONG, cache_salt="stranger"))

    assert isinstance(finished, Finished)
    assert finished.usage.cached_tokens == 0


async def test_it_runs_one_beyond_its_capacity_and_counts_what_waits(
    vllm: Subject, eventually: Eventually
) -> None:
    slots = vllm.backend.capacity + 1
    runs = [
        asyncio.create_task(collect(vllm.backend, make_request(vllm.story, max_tokens=400)))
        for _ in range(slots + 2)
    ]
    await eventually(lambda: vllm.backend.stats().running == slots)

    assert vllm.backend.stats().waiting == 2

    for run in runs:
        run.cancel()
    await asyncio.wait(runs)
    await eventually(lambda: vllm.backend.stats().running == 0)


async def test_it_explains_a_bad_sampling_parameter(vllm: Subject) -> None:
    events = await collect(vllm.backend, make_request("Hello.", top_p=7.0))

    assert isinstance(events[-1], Failed)
    assert events[-1].code is ErrorCode.INVALID_REQUEST
    assert "top_p" in events[-1].message


async def test_it_says_when_its_engine_was_killed(models_dir: Path, eventually: Eventually) -> None:
    others = _engine_processes()
    entry = make_entry(
        backend="vllm", weights="smollm2-135m-instruct", engine_options={"kv_cache_gib": 1}
    )
    backend = VllmBackend(entry, models_dir)
    await backend.start()
    mine = _engine_processes() - others
    run = asyncio.create_task(collect(backend, make_request("Tell a story.", max_tokens=500)))
    await eventually(lambda: backend.stats().running == 1)

    for process in mine:
        # One may have ended because another was killed.
        with suppress(psutil.NoSuchProcess):
            process.kill()
    *_, ending = await run

    assert ending == Failed(code=ErrorCode.ENGINE_FAILED, message="the engine stopped working")
    assert backend.failure() == "the engine's process died"
    await backend.stop()
    await eventually(lambda: not mine & _engine_processes())


async def test_it_refuses_engine_options_that_vllm_does_not_have(models_dir: Path) -> None:
    entry = make_entry(
        backend="vllm", weights="smollm2-135m-instruct", engine_options={"warp_factor": 9}
    )

    with pytest.raises(TandemError, match="unknown engine options of model-under-test: warp_fac"):
        await VllmBackend(entry, models_dir).start()


async def test_it_does_not_describe_tools_in_a_format_that_it_does_not_know(
    models_dir: Path,
) -> None:
    entry = make_entry(
        backend="vllm",
        weights="smollm2-135m-instruct",
        tool_parser="abacus",
        describe_tools=True,
    )

    with pytest.raises(TandemError, match="the tool parser 'abacus' has no format for"):
        await VllmBackend(entry, models_dir).start()


async def test_it_hands_what_the_catalogue_says_to_vllm(tmp_path: Path) -> None:
    from inference.backends.vllm_runtime import engine_arguments

    entry = make_entry(
        backend="vllm",
        weights="w",
        tool_parser="hermes",
        reasoning_parser="qwen3",
        chat_template="own.jinja",
        vision=True,
    )

    told = engine_arguments(entry, tmp_path)
    plain = engine_arguments(make_entry(backend="vllm", weights="w"), tmp_path)

    assert (told.tool_call_parser, told.enable_auto_tool_choice) == ("hermes", True)
    assert told.reasoning_parser == "qwen3"
    assert told.chat_template == "own.jinja"
    assert told.limit_mm_per_prompt["image"] > 0
    assert (plain.tool_call_parser, plain.enable_auto_tool_choice) == (None, False)
    assert plain.chat_template is None
    assert plain.limit_mm_per_prompt["image"] == 0
    assert plain.structured_outputs_config.backend == "xgrammar"


async def test_it_leaves_nothing_when_it_is_stopped_while_it_loads(
    models_dir: Path, eventually: Eventually
) -> None:
    others = _engine_processes()
    entry = make_entry(backend="vllm", weights="smollm2-135m-instruct")
    starting = asyncio.create_task(VllmBackend(entry, models_dir).start())
    await asyncio.sleep(0)

    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    await eventually(lambda: _engine_processes() <= others)
