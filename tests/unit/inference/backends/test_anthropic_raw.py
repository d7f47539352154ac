"""Raw requests to an upstream that keeps every byte, and its answers on their way back."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any

import msgspec
import pytest

from inference.backends import upstream as upstream_module
from inference.backends.anthropic_upstream import AnthropicProvider
from inference.backends.port import Tally
from inference.backends.raw_answers import about_tokens
from inference.backends.upstream import UpstreamBackend
from inference.backends.upstream_health import OPEN_AFTER
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, FinishReason, RawAnswer, RawFrame, Started
from inference.request import GenerationRequest, RawRequest
from inference.upstreams import UpstreamEntry
from tests.conftest import Eventually
from tests.contracts.requests import collect, make_entry, make_request
from tests.raw_messages import (
    ERROR,
    ERROR_FRAME,
    MESSAGE,
    START,
    STREAM,
    named,
    request,
    stream,
)
from tests.raw_upstream import EVENT_STREAM, RawUpstream, Reply, raw_upstream

MODEL = "model-under-test"
KEY = "upstream-key-1234"
COUNT = "/v1/messages/count_tokens"


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[RawUpstream]:
    monkeypatch.setenv("UPSTREAM_KEY", KEY)
    with raw_upstream() as running:
        yield running


class Held:
    """Pieces of an answer that never come. At the end of the test they do."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        self._event.wait()
        yield b" "

    def let_go(self) -> None:
        self._event.set()


@pytest.fixture
def held(upstream: RawUpstream) -> Iterator[Held]:
    held = Held()
    yield held
    held.let_go()


@asynccontextmanager
async def backend(
    upstream: RawUpstream,
    *,
    retries: int = 0,
    key: str = "${env:UPSTREAM_KEY}",
    read_timeout_s: float = 30,
    **fields: Any,
) -> AsyncIterator[UpstreamBackend]:
    entry = UpstreamEntry(
        name="up",
        base_url=upstream.url,
        key=key,
        connect_timeout_s=5,
        read_timeout_s=read_timeout_s,
        retries=retries,
        requests_per_minute=None,
    )
    settings = {"backend": "anthropic", "upstream": entry, "upstream_model": "claude-9"} | fields
    running = UpstreamBackend(make_entry(**settings), AnthropicProvider)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


def asking(*, path: str = "/v1/messages", stream: bool = False, **raw: Any) -> GenerationRequest:
    fields: dict[str, Any] = {
        "path": path,
        "stream": stream,
        "body": request(MODEL, stream=stream),
    } | raw
    return msgspec.structs.replace(make_request(), messages=(), raw=RawRequest(**fields))


async def answers(upstream: RawUpstream, asked: GenerationRequest, **fields: Any) -> list[Event]:
    async with backend(upstream, **fields) as running:
        return await collect(running, asked)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_body_arrives_byte_for_byte_but_for_the_models_name(
    upstream: RawUpstream, streamed: bool
) -> None:
    upstream.reply(MESSAGE)
    await answers(upstream, asking(stream=streamed))
    (asked,) = upstream.asked
    assert asked.path == "/v1/messages"
    assert asked.body == request("claude-9", stream=streamed)
    assert asked.header("content-length") == [str(len(asked.body))]


async def test_headers_travel_and_the_key_is_the_operators(upstream: RawUpstream) -> None:
    carried = (
        ("anthropic-beta", "a-2099,b"),
        ("anthropic-beta", "c\xfc"),
        ("anthropic-version", "2099-01-01"),
        ("user-agent", "claude-cli/9"),
    )
    upstream.reply(MESSAGE)
    await answers(upstream, asking(headers=carried, path="/v1/messages?beta=true"))
    (asked,) = upstream.asked
    assert asked.path == "/v1/messages?beta=true"
    assert [each.encode("latin-1").decode() for each in asked.header("anthropic-beta")] == [
        "a-2099,b",
        "c\xfc",
    ]
    assert asked.header("anthropic-version") == ["2099-01-01"]
    assert asked.header("user-agent") == ["claude-cli/9"]
    assert asked.header("x-api-key") == [KEY]
    assert asked.header("accept-encoding") == ["identity"]
    assert not {"authorization", "cookie"} & {name for name, _ in asked.headers}


async def test_an_upstream_without_a_key_is_sent_none(upstream: RawUpstream) -> None:
    upstream.reply(MESSAGE)
    await answers(upstream, asking(), key="")
    assert upstream.asked[0].header("x-api-key") == []


async def test_who_names_no_version_has_the_usual_one(upstream: RawUpstream) -> None:
    upstream.reply(MESSAGE)
    await answers(upstream, asking())
    assert upstream.asked[0].header("anthropic-version") == ["2023-06-01"]


async def test_a_cookie_of_the_upstreams_is_not_kept(upstream: RawUpstream) -> None:
    upstream.reply(MESSAGE, headers={"set-cookie": "who=first; Path=/"})
    upstream.reply(MESSAGE)
    async with backend(upstream) as running:
        for _ in range(2):
            await collect(running, asking())
    assert upstream.asked[1].header("cookie") == []


async def test_the_operators_options_apply(upstream: RawUpstream) -> None:
    upstream.reply(MESSAGE)
    upstream.reply(b'{"input_tokens":4}')
    options = {"system": "Be kind.", "parameters": {"temperature": 0.5}}
    async with backend(upstream, upstream_options=options, upstream_model="") as running:
        await collect(running, asking(body=b'{"model":"m", "temperature":1}'))
        await collect(running, asking(body=b'{"model":"m"}', path=COUNT))
    first, second = (json.loads(asked.body) for asked in upstream.asked)
    assert first == {"model": MODEL, "temperature": 0.5, "system": "Be kind."}
    assert second == {"model": MODEL, "system": "Be kind."}


async def test_a_stream_passes_frame_by_frame(upstream: RawUpstream) -> None:
    upstream.reply(*STREAM, kind=EVENT_STREAM)
    started, *frames, finished = await answers(upstream, asking(stream=True))
    assert started == Started(prompt_tokens=19)
    assert isinstance(finished, Finished)
    assert finished.usage.output_tokens == 7
    passed = [frame.data for frame in frames if isinstance(frame, RawFrame)]
    assert b"".join(passed) == stream(MODEL)
    assert len(passed) == len(frames)


async def test_a_message_passes_as_it_is(upstream: RawUpstream) -> None:
    upstream.reply(MESSAGE[:50], MESSAGE[50:])
    events = await answers(upstream, asking())
    assert events[1] == RawAnswer(body=named(MESSAGE, MODEL))
    assert isinstance(events[2], Finished)
    assert events[2].reason is FinishReason.PAUSE


async def test_a_count_is_asked_for_where_counts_are(upstream: RawUpstream) -> None:
    upstream.reply(b'{"input_tokens":12,"more":1.0}')
    events = await answers(upstream, asking(path=COUNT))
    assert upstream.asked[0].path == COUNT
    assert events[0] == Started(prompt_tokens=12)
    assert events[1] == RawAnswer(body=b'{"input_tokens":12,"more":1.0}')


@pytest.mark.parametrize("count", [-1, True, 2**62, 10**25])
async def test_what_cannot_be_the_count_of_a_translated_prompt_is_none(
    upstream: RawUpstream, count: int
) -> None:
    upstream.reply(json.dumps({"input_tokens": count}).encode())
    async with backend(upstream) as running:
        with pytest.raises(TandemError, match="cannot be read"):
            await running.count(make_request("Hello."))


def failure(events: list[Event]) -> Failed:
    (failed,) = events
    assert isinstance(failed, Failed)
    return failed


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_error_comes_back_with_its_status_and_in_its_own_words(
    upstream: RawUpstream, streamed: bool
) -> None:
    headers = {"retry-after": "7", "request-id": "req_01", "x-internal": "no", "set-cookie": "a=b"}
    upstream.reply(ERROR, status=529, headers=headers)
    failed = failure(await answers(upstream, asking(stream=streamed)))
    assert failed.code is ErrorCode.OVERLOADED
    assert failed.answer == RawAnswer(
        body=ERROR,
        status=529,
        headers=(("retry-after", "7"), ("tandem-upstream-request-id", "req_01")),
    )


async def test_the_key_does_not_come_back(upstream: RawUpstream) -> None:
    said = f'{{"error":{{"type":"authentication_error","message":"bad key {KEY}"}}}}'
    upstream.reply(said.encode(), status=401)
    failed = failure(await answers(upstream, asking()))
    assert failed.answer is not None
    assert failed.answer.status == 401
    assert failed.answer.body == said.replace(KEY, "[secret]").encode()
    assert KEY not in failed.message


async def test_the_key_comes_back_in_no_header_and_no_frame_either(upstream: RawUpstream) -> None:
    upstream.reply(ERROR, status=500, headers={"request-id": KEY})
    failed = failure(await answers(upstream, asking()))
    assert failed.answer is not None
    assert failed.answer.headers == (("tandem-upstream-request-id", "[secret]"),)
    assert KEY not in failed.message
    frame = ERROR_FRAME.replace(b"Overloaded", KEY.encode())
    upstream.reply(START, frame, kind=EVENT_STREAM)
    events = await answers(upstream, asking(stream=True))
    said = b"".join(event.data for event in events if isinstance(event, RawFrame))
    assert said == named(START, MODEL) + ERROR_FRAME.replace(b"Overloaded", b"[secret]")
    assert KEY not in failure(events[-1:]).message


async def test_a_token_that_the_caller_brings_does_not_come_back(
    upstream: RawUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    token = "sk-planted-of-the-caller"
    server = {"type": "url", "name": "a", "url": "https://a.test", "authorization_token": token}
    body = json.dumps({"model": MODEL, "max_tokens": 1, "mcp_servers": [server]}).encode()
    upstream.reply(json.dumps({"error": {"message": f"bad {token}"}}).encode(), status=500)
    failed = failure(await answers(upstream, asking(body=body)))
    assert upstream.asked[-1].body.count(token.encode()) == 1
    assert token not in f"{failed}{caplog.text}"
    assert "[secret]" in caplog.text


async def test_a_header_that_nobody_can_be_told_is_left_out(upstream: RawUpstream) -> None:
    upstream.reply(ERROR, status=529, headers={"request-id": "\xe6\x97\xa5", "retry-after": "7"})
    answer = failure(await answers(upstream, asking())).answer
    assert answer is not None
    assert answer.headers == (("retry-after", "7"),)


async def test_an_error_of_something_in_between_is_put_into_the_apis_form(
    upstream: RawUpstream,
) -> None:
    upstream.reply(b"<html>Bad Gateway</html>", status=502, kind="text/html")
    failed = failure(await answers(upstream, asking()))
    assert failed.answer is not None
    assert failed.answer.status == 502
    error = json.loads(failed.answer.body)["error"]
    assert error["type"] == "api_error"
    assert "502" in error["message"]


async def test_a_redirect_leads_nobody_anywhere(upstream: RawUpstream) -> None:
    upstream.reply(b"", status=307, headers={"location": f"{upstream.url}/elsewhere"})
    failed = failure(await answers(upstream, asking()))
    assert (failed.code, failed.answer) == (ErrorCode.UNAVAILABLE, None)
    assert len(upstream.asked) == 1


@pytest.mark.parametrize(
    ("streamed", "kind"), [(True, "application/json"), (False, EVENT_STREAM), (False, "text/html")]
)
async def test_another_kind_of_answer_than_was_asked_for_is_none(
    upstream: RawUpstream, streamed: bool, kind: str
) -> None:
    upstream.reply(b"<html>", kind=kind)
    failed = failure(await answers(upstream, asking(stream=streamed)))
    assert (failed.code, failed.answer) == (ErrorCode.UNAVAILABLE, None)


async def test_a_caller_cannot_make_an_upstream_look_down(upstream: RawUpstream) -> None:
    async with backend(upstream) as running:
        for _ in range(OPEN_AFTER):
            upstream.reply(*STREAM, kind=EVENT_STREAM)
            failure(await collect(running, asking()))
        upstream.reply(MESSAGE)
        assert isinstance((await collect(running, asking()))[-1], Finished)


async def test_an_answer_that_takes_too_long_to_be_whole_does_not_either(
    upstream: RawUpstream, held: Held, eventually: Eventually
) -> None:
    async with backend(upstream, read_timeout_s=0.1) as running:
        # One more than a circuit breaker would let through.
        for _ in range(OPEN_AFTER + 1):
            upstream.replies.append(Reply(pieces=held))
            assert failure(await collect(running, asking())).code is ErrorCode.TIMEOUT
        await eventually(lambda: len(upstream.asked) == OPEN_AFTER + 1)


async def test_a_stream_is_over_with_its_last_frame(
    upstream: RawUpstream, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_module, "_LAST_WORDS_S", 0.05)
    upstream.replies.append(Reply(pieces=chain(STREAM, held), kind=EVENT_STREAM))
    events = await answers(upstream, asking(stream=True))
    assert isinstance(events[-1], Finished)


async def test_who_leaves_before_the_answer_has_begun_has_sent_a_prompt(
    upstream: RawUpstream, held: Held, eventually: Eventually
) -> None:
    upstream.replies.append(Reply(pieces=held))
    tally = Tally()
    async with backend(upstream) as running:
        run = asyncio.ensure_future(anext(running.generate(asking(), tally)))
        await eventually(lambda: len(upstream.asked) == 1)
        run.cancel()
        await asyncio.wait([run])
    assert tally.prompt_tokens == about_tokens(request(MODEL, stream=False))
    assert tally.output_tokens == 0


async def test_what_fails_before_the_first_byte_is_tried_again(upstream: RawUpstream) -> None:
    upstream.reply(ERROR, status=529)
    upstream.reply(cut=True, kind=EVENT_STREAM)
    upstream.reply(*STREAM, kind=EVENT_STREAM)
    events = await answers(upstream, asking(stream=True), retries=2)
    assert isinstance(events[-1], Finished)
    bodies = {asked.body for asked in upstream.asked}
    assert (len(upstream.asked), len(bodies)) == (3, 1)


@pytest.mark.parametrize("cut", [True, False])
async def test_what_breaks_off_later_is_not(upstream: RawUpstream, cut: bool) -> None:
    upstream.reply(START, kind=EVENT_STREAM, cut=cut)
    *_, frame, failed = await answers(upstream, asking(stream=True), retries=2)
    assert isinstance(frame, RawFrame)
    assert isinstance(failed, Failed)
    assert (failed.code, failed.answer) == (ErrorCode.UNAVAILABLE, None)
    assert len(upstream.asked) == 1


async def test_an_error_within_a_stream_passes_as_it_is(upstream: RawUpstream) -> None:
    upstream.reply(START, ERROR_FRAME, kind=EVENT_STREAM)
    _, *frames, failed = await answers(upstream, asking(stream=True))
    passed = [frame for frame in frames if isinstance(frame, RawFrame)]
    assert b"".join(frame.data for frame in passed) == named(START, MODEL) + ERROR_FRAME
    assert [frame.last for frame in passed] == [False] * (len(frames) - 1) + [True]
    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.OVERLOADED


async def test_an_upstream_that_is_away_is_told_of(upstream: RawUpstream) -> None:
    away = RawUpstream("http://127.0.0.1:1")
    failed = failure(await answers(away, asking()))
    assert (failed.code, failed.answer) == (ErrorCode.UNAVAILABLE, None)
    assert "cannot be reached" in failed.message


async def test_who_leaves_ends_the_answer_upstream(upstream: RawUpstream) -> None:
    def endless() -> Iterator[bytes]:
        yield START
        while not upstream.left.is_set():
            yield b'event: ping\ndata: {"type": "ping"}\n\n'

    async with backend(upstream) as running:
        upstream.replies.append(Reply(pieces=endless(), kind=EVENT_STREAM))
        events = running.generate(asking(stream=True))
        assert isinstance(await anext(events), Started)
        await events.aclose()
        assert await asyncio.to_thread(upstream.left.wait, 30)


async def test_connections_are_used_again(upstream: RawUpstream) -> None:
    async with backend(upstream) as running:
        for _ in range(3):
            upstream.reply(*STREAM, kind=EVENT_STREAM)
            assert isinstance((await collect(running, asking(stream=True)))[-1], Finished)
    assert len(upstream.connections) == 1
