"""A model that others run, whichever dialect they speak."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from inference.backends import upstream, upstream_health
from inference.backends.port import Tally
from inference.backends.upstream import UpstreamBackend
from inference.backends.upstream_health import OPEN_AFTER, UpstreamError
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, FinishReason, Started, TextDelta
from inference.request import GenerationRequest, Lane, RawRequest
from inference.upstreams import UpstreamEntry, UpstreamOptions
from tests.conftest import Eventually
from tests.contracts.requests import collect, make_entry, make_request

KEY = "sk-planted-secret"
AWAY = UpstreamError(ErrorCode.UNAVAILABLE, f"away, {KEY}", passing=True, down=True)
BUSY = UpstreamError(ErrorCode.RESOURCE_UNAVAILABLE, "busy", passing=True)
WRONG = UpstreamError(ErrorCode.INVALID_REQUEST, "wrong")
BROKEN = UpstreamError(ErrorCode.UNAVAILABLE, "broke off")
END = "the end"
SILENCE = "nothing more, for ever"
ANSWER = ("Hi.", END)

Script = UpstreamError | tuple[str | UpstreamError, ...]


class FakeAnswer:
    """Tells what it reads as text. With `END` it is whole."""

    full = False
    whole = False

    def __init__(self, tally: Tally) -> None:
        self.begun = False
        self._tally = tally

    def sent(self) -> None:
        self._tally.prompt_tokens = 7

    def read(self, data: object) -> Iterator[Event]:
        if not self.begun:
            self.begun = True
            yield Started(prompt_tokens=1)
        self.whole = data == END
        if not self.whole:
            yield TextDelta(str(data))

    def end(self) -> Iterator[Event]:
        if not self.whole:
            raise BROKEN
        yield Finished(reason=FinishReason.END, usage=self._tally.usage)


class FakeProvider:
    """Plays one script per try; the last one stays."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.tries = 0
        self.closed = False
        self.made_of: tuple[ModelEntry, UpstreamEntry, UpstreamOptions, str] | None = None

    def make(
        self, entry: ModelEntry, upstream: UpstreamEntry, options: UpstreamOptions, key: str
    ) -> FakeProvider:
        self.made_of = entry, upstream, options, key
        return self

    def fields(self, request: GenerationRequest) -> dict[str, Any]:
        if request.sampling.top_k:
            raise TandemError(ErrorCode.INVALID_REQUEST, "cannot carry `top_k`")
        return {}

    def answer(self, request: GenerationRequest, tally: Tally) -> FakeAnswer:
        return FakeAnswer(tally)

    @asynccontextmanager
    async def stream(self, fields: dict[str, Any]) -> AsyncIterator[AsyncIterator[object]]:
        self.tries += 1
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        if isinstance(script, UpstreamError):
            raise script
        yield self._pieces(script)

    async def _pieces(self, script: tuple[str | UpstreamError, ...]) -> AsyncIterator[object]:
        for piece in script:
            if isinstance(piece, UpstreamError):
                raise piece
            if piece == SILENCE:
                await asyncio.Event().wait()
            yield piece

    async def count(self, request: GenerationRequest) -> int:
        raise TandemError(ErrorCode.INVALID_REQUEST, f"no, {KEY}", param="model")

    async def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Wait for nothing, and return how long it would have been."""
    waited: list[float] = []

    def pause_s(*arguments: Any, **options: Any) -> float | None:
        pause = upstream_health.pause_s(*arguments, **options)
        if pause is None:
            return None
        waited.append(pause)
        return 0.0

    monkeypatch.setattr(upstream, "pause_s", pause_s)
    return waited


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    return file


def entry(key_file: Path, **fields: Any) -> ModelEntry:
    told = UpstreamEntry(
        name="there",
        base_url="http://127.0.0.1:9",
        key=f"${{file:{key_file}}}",
        connect_timeout_s=1,
        read_timeout_s=1,
        retries=2,
        requests_per_minute=None,
    )
    return make_entry(**({"backend": "openai", "upstream": told} | fields))


async def begun(key_file: Path, *scripts: Script) -> tuple[UpstreamBackend, FakeProvider]:
    provider = FakeProvider(*scripts)
    backend = UpstreamBackend(entry(key_file), provider.make)
    await backend.start()
    return backend, provider


def request(lane: Lane = Lane.REALTIME, **sampling: Any) -> GenerationRequest:
    return msgspec.structs.replace(make_request("Hello.", **sampling), lane=lane)


async def test_it_hands_the_key_to_the_provider_and_closes_it(key_file: Path) -> None:
    backend, provider = await begun(key_file, ANSWER)

    assert provider.made_of is not None
    assert provider.made_of[3] == KEY
    await backend.stop()
    await backend.stop()
    assert provider.closed


async def test_it_tries_again_until_it_is_answered(key_file: Path, pauses: list[float]) -> None:
    backend, provider = await begun(key_file, AWAY, BUSY, ANSWER)

    events = await collect(backend, request())

    assert events[:2] == [Started(prompt_tokens=1), TextDelta("Hi.")]
    assert isinstance(events[-1], Finished)
    assert provider.tries == 3
    assert len(pauses) == 2


async def test_it_gives_up_after_the_operators_number_of_tries(key_file: Path) -> None:
    backend, provider = await begun(key_file, BUSY)

    (failed,) = await collect(backend, request())

    assert failed == Failed(code=ErrorCode.RESOURCE_UNAVAILABLE, message="busy")
    assert provider.tries == 3


async def test_it_never_tries_again_once_something_was_said(key_file: Path) -> None:
    backend, provider = await begun(key_file, ("Hi", AWAY), ANSWER)

    events = await collect(backend, request())

    assert [type(event) for event in events] == [Started, TextDelta, Failed]
    assert provider.tries == 1


async def test_what_goes_wrong_behind_the_end_concerns_nobody(key_file: Path) -> None:
    backend, _ = await begun(key_file, (*ANSWER, AWAY))

    events = await collect(backend, request())

    assert [type(event) for event in events] == [Started, TextDelta, Finished]


async def test_an_upstream_that_does_not_hang_up_is_left(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "_LAST_WORDS_S", 0.05)
    backend, _ = await begun(key_file, (*ANSWER, SILENCE))

    events = await asyncio.wait_for(collect(backend, request()), 30)

    assert isinstance(events[-1], Finished)


async def test_an_answer_that_is_not_whole_is_waited_for(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "_LAST_WORDS_S", 0.0)
    backend, _ = await begun(key_file, ("Hi", " there", END))

    events = await collect(backend, request())

    assert isinstance(events[-1], Finished)


async def test_the_prompt_counts_once_it_is_on_its_way(
    key_file: Path, eventually: Eventually
) -> None:
    backend, _ = await begun(key_file, (SILENCE,))
    tally = Tally()
    run = asyncio.ensure_future(anext(backend.generate(request(), tally)))

    await eventually(lambda: tally.prompt_tokens == 7)

    run.cancel()
    await asyncio.wait([run])


async def test_a_prompt_that_was_refused_does_not_count(
    key_file: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "pause_s", lambda *_, **__: 60.0)
    backend, provider = await begun(key_file, BUSY)
    tally = Tally()
    run = asyncio.ensure_future(anext(backend.generate(request(), tally)))

    await eventually(lambda: provider.tries == 1 and tally.prompt_tokens == 0)

    run.cancel()
    await asyncio.wait([run])
    assert tally.prompt_tokens == 0


async def test_halves_of_characters_reach_nobody(key_file: Path) -> None:
    broken = UpstreamError(ErrorCode.UNAVAILABLE, "no \ud83d")
    backend, _ = await begun(key_file, ("\ud83d", "\udeb2", broken))

    events = await collect(backend, request())

    assert msgspec.msgpack.encode(events)
    assert events[1] == TextDelta("🚲")
    assert isinstance(events[-1], Failed)
    assert events[-1].message == "no \ufffd"


async def test_it_does_not_try_again_what_is_wrong(key_file: Path) -> None:
    backend, provider = await begun(key_file, WRONG)

    assert await collect(backend, request()) == [
        Failed(code=ErrorCode.INVALID_REQUEST, message="wrong")
    ]
    assert provider.tries == 1


async def test_it_does_not_send_what_cannot_be_carried(key_file: Path) -> None:
    backend, provider = await begun(key_file, ANSWER)

    (failed,) = await collect(backend, request(top_k=3))

    assert isinstance(failed, Failed)
    assert "`top_k`" in failed.message
    assert provider.tries == 0


@pytest.mark.parametrize("lane", [Lane.BACKGROUND, Lane.BATCH])
async def test_work_waits_until_the_upstream_is_back(lane: Lane, key_file: Path) -> None:
    backend, provider = await begun(key_file, *[BUSY] * 20, ANSWER)

    events = await collect(backend, request(lane))

    assert isinstance(events[-1], Finished)
    assert provider.tries == 21


async def test_nobody_waits_beyond_the_deadline(key_file: Path) -> None:
    backend, provider = await begun(key_file, BUSY)
    late = msgspec.structs.replace(request(Lane.BATCH), deadline_s=time.time() - 1)

    (failed,) = await collect(backend, late)

    assert isinstance(failed, Failed)
    assert provider.tries == 1


async def test_it_leaves_an_upstream_alone_that_keeps_failing(key_file: Path) -> None:
    backend, provider = await begun(key_file, AWAY)
    while provider.tries < OPEN_AFTER:
        await collect(backend, request())

    (failed,) = await collect(backend, request())

    assert provider.tries == OPEN_AFTER
    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.UNAVAILABLE
    assert "left alone" in failed.message


def raw_request(path: str) -> GenerationRequest:
    return msgspec.structs.replace(request(), raw=RawRequest(path=path, body=b"{}"))


COUNT = "/v1/messages/count_tokens?beta=true"


async def test_counts_that_fail_have_no_upstream_left_alone(key_file: Path) -> None:
    backend, _ = await begun(key_file, *[AWAY] * OPEN_AFTER * 3, ANSWER)
    for _ in range(OPEN_AFTER):
        await collect(backend, raw_request(COUNT))

    events = await collect(backend, raw_request("/v1/messages"))

    assert isinstance(events[-1], Finished)


async def test_an_upstream_that_is_left_alone_is_asked_for_no_counts(key_file: Path) -> None:
    backend, provider = await begun(key_file, AWAY)
    while provider.tries < OPEN_AFTER:
        await collect(backend, request())

    (failed,) = await collect(backend, raw_request(COUNT))
    with pytest.raises(TandemError, match="left alone"):
        await backend.count(request())

    assert isinstance(failed, Failed)
    assert "left alone" in failed.message
    assert provider.tries == OPEN_AFTER


async def test_counts_use_up_nothing_of_what_may_be_sent(key_file: Path) -> None:
    provider = FakeProvider(ANSWER)
    limited = entry(key_file)
    assert limited.upstream is not None
    upstream_entry = msgspec.structs.replace(limited.upstream, requests_per_minute=2)
    backend = UpstreamBackend(entry(key_file, upstream=upstream_entry), provider.make)
    await backend.start()
    async with asyncio.timeout(30):
        for path in (*[COUNT] * 5, *["/v1/messages"] * 2):
            events = await collect(backend, raw_request(path))
            assert isinstance(events[-1], Finished)


async def test_the_key_is_in_no_error_and_no_log(
    key_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend, _ = await begun(key_file, AWAY)
    with caplog.at_level(logging.DEBUG):
        (failed,) = await collect(backend, request())
        with pytest.raises(TandemError) as caught:
            await backend.count(request())

    assert isinstance(failed, Failed)
    assert failed.message == "away, [secret]"
    assert caught.value.message == "no, [secret]"
    assert caught.value.param == "model"
    assert "away" in caplog.text
    assert KEY not in caplog.text


async def test_what_is_wrong_with_a_request_is_not_logged(
    key_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend, _ = await begun(key_file, WRONG)
    with caplog.at_level(logging.DEBUG):
        await collect(backend, request())

    assert "wrong" not in caplog.text


async def test_looking_at_it_is_progress_so_that_no_silence_is_a_hang(key_file: Path) -> None:
    backend, _ = await begun(key_file, ANSWER)

    assert backend.stats().progress < backend.stats().progress
    assert backend.failure() is None


async def test_it_runs_nothing_before_it_was_started(key_file: Path) -> None:
    backend = UpstreamBackend(entry(key_file), FakeProvider(ANSWER).make)

    (failed,) = await collect(backend, request())

    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.ENGINE_FAILED


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"upstream": None}, "it has no upstream"),
        ({"upstream_options": {"sytem": "x"}}, "unknown field `sytem`"),
        ({"upstream_options": {"parameters": {"model": "x"}}}, "must not contain 'model'"),
    ],
)
async def test_it_does_not_start_with_an_entry_that_is_wrong(
    fields: dict[str, Any], why: str, key_file: Path
) -> None:
    backend = UpstreamBackend(entry(key_file, **fields), FakeProvider(ANSWER).make)

    with pytest.raises(TandemError, match=why) as caught:
        await backend.start()

    assert caught.value.code is ErrorCode.ENGINE_FAILED


async def test_it_does_not_start_without_its_key(tmp_path: Path) -> None:
    backend = UpstreamBackend(entry(tmp_path / "none"), FakeProvider(ANSWER).make)

    with pytest.raises(TandemError, match="its key cannot be read"):
        await backend.start()


async def test_a_run_that_is_called_off_is_over(key_file: Path) -> None:
    backend, _ = await begun(key_file, ANSWER)
    events = backend.generate(request())
    await anext(events)
    assert backend.stats().running == 1

    await asyncio.wait_for(events.aclose(), 5)

    assert backend.stats().running == 0


async def test_a_large_body_is_edited_aside(key_file: Path) -> None:
    backend, provider = await begun(key_file, ANSWER)
    threads = []

    def fields(request: GenerationRequest) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return {}

    provider.fields = fields  # type: ignore[method-assign]
    for size in (1, 1024 * 1024):
        raw = RawRequest(path="/v1/messages", body=b" " * size)
        await collect(backend, msgspec.structs.replace(request(), raw=raw))
    await backend.stop()

    assert threads[0] is threading.current_thread()
    assert threads[1] is not threads[0]
