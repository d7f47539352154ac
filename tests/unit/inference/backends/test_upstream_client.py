"""The official clients beside a server that misbehaves, one dialect after the other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from inference.backends import upstream, upstream_limits
from inference.backends.registry import build_backend
from inference.backends.upstream import UpstreamBackend
from inference.errors import ErrorCode
from inference.events import Event, Failed, Finished
from inference.request import GenerationRequest
from tests.conftest import Eventually
from tests.contracts.requests import collect, make_entry, make_request, text_of
from tests.upstream_server import Reply, UpstreamServer, error_reply, stream_reply

KEY = "sk-planted-secret"


class Dialect(NamedTuple):
    """How one dialect is spoken: `frames` begin an answer that says `Hi`, which `end` ends."""

    backend: str
    path: str
    call: str
    frames: tuple[dict[str, Any], ...]
    end: dict[str, Any]


OPENAI = Dialect(
    "openai",
    "/v1",
    "/v1/chat/completions",
    ({"choices": [{"delta": {"content": "Hi"}}]},),
    {"choices": [{"delta": {}, "finish_reason": "stop"}]},
)
ANTHROPIC = Dialect(
    "anthropic",
    "",
    "/v1/messages",
    (
        {"type": "message_start", "message": {"usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    ),
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
)


@pytest.fixture(params=[OPENAI, ANTHROPIC], ids=lambda dialect: dialect.backend)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Return each dialect in turn."""
    found: Dialect = request.param
    return found


@pytest.fixture
async def server() -> AsyncIterator[UpstreamServer]:
    """Return an upstream."""
    async with UpstreamServer(make_entry()) as running:
        yield running


@asynccontextmanager
async def running(
    server: UpstreamServer, dialect: Dialect, **fields: Any
) -> AsyncIterator[UpstreamBackend]:
    told = server.upstream(dialect.path, **fields)
    backend = build_backend(make_entry(backend=dialect.backend, upstream=told), Path())
    assert isinstance(backend, UpstreamBackend)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.stop()


async def ask(server: UpstreamServer, dialect: Dialect, **fields: Any) -> list[Event]:
    request: GenerationRequest = make_request("Hello.")
    async with running(server, dialect, **fields) as backend:
        return await collect(backend, request)


def failed(events: list[Event]) -> Failed:
    last = events[-1]
    assert isinstance(last, Failed)
    return last


async def test_the_upstreams_key_is_sent_and_nobody_elses(
    server: UpstreamServer, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_API_KEY", KEY)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "another-secret")

    events = await ask(server, dialect, key="${env:THEIR_API_KEY}")

    assert isinstance(events[-1], Finished)
    (received,) = server.received
    assert received.path == dialect.call
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert "another-secret" not in str(received)


async def test_a_key_is_made_up_where_none_is_needed(
    server: UpstreamServer, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "another-secret")

    await ask(server, dialect)

    assert "another-secret" not in str(server.received)


async def test_nothing_that_the_environment_says_for_another_provider_is_sent(
    server: UpstreamServer, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "another-secret")
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "authorization: another-secret\nx-other: another-secret")

    await ask(server, dialect)

    assert len(server.received) == 1
    assert "another-secret" not in str(server.received)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ErrorCode.INVALID_REQUEST),
        (401, ErrorCode.UNAVAILABLE),
        (429, ErrorCode.RESOURCE_UNAVAILABLE),
        (500, ErrorCode.UNAVAILABLE),
        (529, ErrorCode.OVERLOADED),
    ],
)
async def test_errors_are_told_apart(
    server: UpstreamServer, dialect: Dialect, status: int, code: ErrorCode
) -> None:
    server.replies.append(error_reply(status, {"message": "No.", "type": "x"}, request_id="r1"))

    told = failed(await ask(server, dialect))

    assert told.code is code
    assert ("r1" in told.message) == (status != 400)


async def test_a_failure_before_the_answer_is_tried_again(
    server: UpstreamServer, dialect: Dialect
) -> None:
    server.replies += [error_reply(500, {"message": "No."}), Reply(cut=True)]

    assert isinstance((await ask(server, dialect, retries=2))[-1], Finished)
    assert len(server.received) == 3


async def test_a_redirect_is_not_followed(server: UpstreamServer, dialect: Dialect) -> None:
    elsewhere = {"location": f"{server.url}/elsewhere"}
    server.replies.append(Reply(status=307, headers=elsewhere))

    told = failed(await ask(server, dialect))

    assert "307" in told.message
    assert [received.path for received in server.received] == [dialect.call]


async def test_a_cookie_is_not_kept(server: UpstreamServer, dialect: Dialect) -> None:
    server.replies.append(Reply(status=500, headers={"set-cookie": "whose=yours"}))

    await ask(server, dialect, retries=1)

    assert len(server.received) == 2
    assert "cookie" not in server.received[1].headers


async def test_an_upstream_that_is_not_there_is_told(
    server: UpstreamServer, dialect: Dialect
) -> None:
    # The discard port: nobody listens there.
    told = failed(await ask(server, dialect, base_url="http://127.0.0.1:9"))

    assert told.code is ErrorCode.UNAVAILABLE
    assert "cannot be reached" in told.message


@pytest.mark.parametrize("said", [False, True])
async def test_a_silent_upstream_times_out(
    server: UpstreamServer, dialect: Dialect, said: bool
) -> None:
    frames = dialect.frames if said else ()
    server.replies.append(stream_reply(*frames, named=True, hangs=True))

    # What is said must be there in that time, however busy the machine.
    events = await ask(server, dialect, read_timeout_s=2 if said else 0.2)

    assert failed(events).code is ErrorCode.TIMEOUT
    assert text_of(events) == ("Hi" if said else "")


@pytest.mark.parametrize("cut", [False, True])
async def test_an_answer_that_breaks_off_fails(
    server: UpstreamServer, dialect: Dialect, cut: bool
) -> None:
    server.replies.append(stream_reply(*dialect.frames, named=True, cut=cut))

    events = await ask(server, dialect, retries=2)

    assert text_of(events) == "Hi"
    assert failed(events).code is ErrorCode.UNAVAILABLE
    assert len(server.received) == 1


@pytest.mark.parametrize("how", [{"cut": True}, {"hangs": True}], ids=["cut", "hangs"])
async def test_an_answer_that_is_whole_is_one_however_the_connection_ends(
    server: UpstreamServer, dialect: Dialect, how: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "_LAST_WORDS_S", 0.05)
    server.replies.append(stream_reply(*dialect.frames, dialect.end, named=True, **how))

    events = await ask(server, dialect)

    assert text_of(events) == "Hi"
    assert isinstance(events[-1], Finished)


async def test_an_event_without_an_end_is_given_up(
    server: UpstreamServer, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_limits, "MAX_EVENT_BYTES", 100_000)
    begun = stream_reply(*dialect.frames, named=True)
    pieces = (*begun.chunks, *[b"data: " + b"x" * 1000] * 200)
    server.replies.append(Reply(headers=begun.headers, chunks=pieces))

    told = failed(await ask(server, dialect))

    assert "more than 100000 bytes" in told.message


async def test_a_long_answer_of_short_events_is_no_such(
    server: UpstreamServer, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_limits, "MAX_EVENT_BYTES", 1000)
    frames = [*dialect.frames[:-1], *[dialect.frames[-1]] * 500, dialect.end]
    server.replies.append(stream_reply(*frames, named=True))

    assert text_of(await ask(server, dialect)) == "Hi" * 500


async def test_characters_may_be_cut_in_two(server: UpstreamServer, dialect: Dialect) -> None:
    whole = json.dumps([*dialect.frames, dialect.frames[-1], dialect.end])
    halves = json.loads(whole.replace('"Hi"', r'"\ud83d"', 1).replace('"Hi"', r'"\udeb2"'))
    server.replies.append(stream_reply(*halves, named=True))

    assert text_of(await ask(server, dialect)) == "🚲"


async def test_an_error_inside_the_stream_is_told(server: UpstreamServer, dialect: Dialect) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}}
    server.replies.append(stream_reply(*dialect.frames, error, named=True))

    told = failed(await ask(server, dialect))

    assert told.code is ErrorCode.OVERLOADED
    assert "Busy." in told.message


async def test_what_is_no_json_is_told(server: UpstreamServer, dialect: Dialect) -> None:
    stream = {"content-type": "text/event-stream"}
    server.replies.append(Reply(headers=stream, chunks=(b"event: x\ndata: {no\n\n",)))

    assert "cannot be read" in failed(await ask(server, dialect)).message


async def test_chunks_may_be_cut_anywhere(server: UpstreamServer, dialect: Dialect) -> None:
    said: list[dict[str, Any]] = [
        {"choices": [{"delta": {"content": "é🚲"}, "finish_reason": "stop"}]}
    ]
    if dialect is ANTHROPIC:
        text = {"type": "text_delta", "text": "é🚲"}
        ending = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
        said = [*dialect.frames[:2], dialect.frames[2] | {"delta": text}, ending]
    (reply,) = [stream_reply(*said, named=True)]
    whole = b"".join(reply.chunks).replace(b"\\u00e9", "é".encode())
    pieces = tuple(whole[at : at + 1] for at in range(len(whole)))
    server.replies.append(Reply(headers=reply.headers, chunks=pieces))

    events = await ask(server, dialect)

    assert text_of(events) == "é🚲"
    assert isinstance(events[-1], Finished)


async def test_a_client_that_leaves_leaves_the_upstream_too(
    server: UpstreamServer, dialect: Dialect, eventually: Eventually
) -> None:
    endless = make_request('script: {"tokens": 10000, "token_delay_s": 0.01}', max_tokens=900)
    async with running(server, dialect) as backend:
        events = backend.generate(endless)
        await anext(events)
        assert server.backend.stats().running == 1
        await events.aclose()
        await eventually(lambda: server.backend.stats().running == 0)
