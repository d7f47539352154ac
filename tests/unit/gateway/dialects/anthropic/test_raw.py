"""Bodies that travel as they are: what is looked at of them, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.anthropic.encode import PING
from gateway.dialects.anthropic.raw import (
    RawBody,
    RawCountBody,
    RawStream,
    carried_headers,
    carried_path,
    check_members,
    decode_raw,
    raw_request,
)
from gateway.dialects.context import ParseContext
from gateway.http.body import decode_object
from gateway.http.sse import COMMENT
from inference.errors import ErrorCode, TandemError
from inference.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    RawAnswer,
    RawFrame,
    Started,
    Usage,
)
from inference.raw_error import RawError
from inference.request import Lane, Owner, RawRequest
from tests.raw_messages import ERROR, ERROR_FRAME, REQUEST, START, request

MODEL = "vendor/Far-1"
FINISHED = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
)


def test_nothing_but_what_admission_needs_is_looked_at() -> None:
    body = decode_raw(decode_object(request("far", stream=True)), {})
    assert body == RawBody(model="far", max_tokens=64, stream=True)
    odd = {"model": "far", "max_tokens": 0, "messages": "?", "temperature": 9, "stream": None}
    assert decode_raw(odd, {}) == RawBody(model="far", max_tokens=0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"model": "far"}, "max_tokens: Field required"),
        ({"model": "far", "max_tokens": -1}, "max_tokens: "),
        ({"model": "far", "max_tokens": "9"}, "max_tokens: "),
        ({"model": "far", "max_tokens": 9, "stream": 1}, "stream: "),
        ({"max_tokens": 9}, "model: Field required"),
    ],
)
def test_what_admission_needs_is_checked(body: dict[str, Any], message: str) -> None:
    with pytest.raises(TandemError) as refused:
        decode_raw(body, {})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.message.startswith(message)


def test_counting_needs_no_limit() -> None:
    assert decode_raw({"model": "far"}, {}, RawCountBody).max_tokens == 0


def test_the_operators_limit_is_the_one_that_counts() -> None:
    parameters = {"max_tokens": 99}
    assert decode_raw({"model": "far", "max_tokens": 5}, parameters).max_tokens == 99
    assert decode_raw({"model": "far"}, parameters).max_tokens == 99


def test_a_body_that_says_nothing_twice_can_be_passed_on() -> None:
    body = request("far", stream=True)
    check_members(decode_object(body), body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"max_tokens":5,"max_tokens":1}', "`max_tokens` comes twice"),
        (b'{"model":"a","mod\\u0065l":"b"}', "`model` comes twice"),
        (b'{"x":[[],[]],"x":1}', "`x` comes twice"),
        (b"{%b}" % b",".join(b'"%d":1' % number for number in range(1001)), "1,000 members"),
    ],
)
def test_a_body_that_cannot_be_edited_at_once_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(TandemError, match=why) as refused:
        check_members(decode_object(body), body)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_servers_are_as_many_as_elsewhere_and_their_tokens_as_long() -> None:
    def body(servers: Any) -> dict[str, Any]:
        return {"model": "far", "max_tokens": 1, "mcp_servers": servers}

    for taken in ([{"authorization_token": "x" * 8192}] * 20, "?", [1, None], None):
        decode_raw(body(taken), {})
    for servers, path in (
        ([{}] * 21, "mcp_servers"),
        ([{}, {"authorization_token": "x" * 8193}], "mcp_servers.1.authorization_token"),
    ):
        with pytest.raises(TandemError) as refused:
            decode_raw(body(servers), {})
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert refused.value.message.startswith(f"{path}: more than")


def test_keys_cookies_and_what_proxies_say_stay_here() -> None:
    sent = [
        (b"Anthropic-Beta", b"a,b"),
        (b"x-api-key", b"sk-1"),
        (b"authorization", b"Bearer sk-1"),
        (b"proxy-authorization", b"Basic x"),
        (b"cookie", b"a=b"),
        (b"anthropic-beta", "c\xfc".encode()),
        (b"anthropic-version", b"2023-06-01"),
        (b"host", b"tandem"),
        (b"connection", b"keep-alive"),
        (b"content-length", b"5"),
        (b"transfer-encoding", b"chunked"),
        (b"x-forwarded-for", b"10.0.0.1"),
        (b"x-company-token", b"secret"),
        (b"accept-encoding", b"gzip"),
        (b"user-agent", b"claude-cli/9"),
        (b"x-claude-code-session-id", b"s"),
        (b"x-stainless-lang", b"python"),
        (b"traceparent", b"00-1-2-01"),
    ]
    assert carried_headers(sent) == (
        ("anthropic-beta", "a,b"),
        ("anthropic-beta", "c\xfc"),
        ("anthropic-version", "2023-06-01"),
        ("user-agent", "claude-cli/9"),
        ("x-claude-code-session-id", "s"),
        ("x-stainless-lang", "python"),
        ("traceparent", "00-1-2-01"),
    )


def test_whose_account_is_used_there_is_not_the_callers_to_say() -> None:
    sent = [(b"anthropic-workspace-id", b"w"), (b"Anthropic-Organization-Id", b"o")]
    assert carried_headers(sent) == ()


@pytest.mark.parametrize("value", [b"a\x01b", b"a\rb", b"a\x7fb", b"a\xfcb"])
def test_a_header_that_no_upstream_would_take_is_refused(value: bytes) -> None:
    with pytest.raises(TandemError) as refused:
        carried_headers([(b"anthropic-beta", value)])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.message.startswith("anthropic-beta: ")
    assert carried_headers([(b"cookie", value)]) == ()


@pytest.mark.parametrize("name", [b"anthropic-(x", b"anthropic-\xe9", b"anthropic-x y"])
def test_a_name_that_no_header_can_have_is_refused(name: bytes) -> None:
    with pytest.raises(TandemError) as refused:
        carried_headers([(name, b"1")])
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_space_around_a_header_is_no_part_of_it() -> None:
    assert carried_headers([(b"anthropic-beta", b" \ta b\t ")]) == (("anthropic-beta", "a b"),)


def test_of_a_query_what_the_api_knows_travels() -> None:
    assert carried_path("/v1/messages", [("beta", "true"), ("key", "sk-1")]) == (
        "/v1/messages?beta=true"
    )
    assert carried_path("/v1/messages", [("key", "sk-1")]) == "/v1/messages"


def test_the_canonical_request_says_what_the_service_must_know() -> None:
    raw = RawRequest(path="/v1/messages", body=REQUEST, stream=True)
    context = ParseContext(
        request_id="r1",
        model=MODEL,
        deadline_s=5.0,
        lane=Lane.BATCH,
        owner=Owner(team_id=1, key_id="k"),
    )
    made = raw_request(RawBody(model="far", max_tokens=64), context, raw)
    assert (made.id, made.model, made.lane, made.deadline_s) == ("r1", MODEL, Lane.BATCH, 5.0)
    assert (made.owner, made.sampling.max_tokens) == (context.owner, 64)
    assert (made.raw, made.messages) == (raw, ())


def test_frames_pass_as_they_are() -> None:
    encoder = RawStream("req_1")
    events: list[Event] = [
        Started(prompt_tokens=1),
        RawFrame(START),
        RawFrame(b"data: x\n\n", last=True),
    ]
    assert [encoder.feed(event) for event in events] == [b"", START, b"data: x\n\n"]
    assert not encoder.over
    assert encoder.feed(FINISHED) == b""
    assert encoder.over


def test_a_quiet_stream_has_pings_only_behind_its_first_frame() -> None:
    encoder = RawStream("req_1")
    assert encoder.keep_alive(begun=True) == COMMENT
    encoder.feed(RawFrame(START))
    assert encoder.keep_alive(begun=True) == PING


def test_a_stream_that_breaks_ends_with_an_error() -> None:
    encoder = RawStream("req_1")
    encoder.feed(RawFrame(START))
    frame = encoder.feed(Failed(code=ErrorCode.UNAVAILABLE, message="it broke off"))
    assert encoder.over
    assert frame.startswith(b"event: error\ndata: {")
    assert b'"it broke off"' in frame
    assert b'"req_1"' in frame


def test_an_error_that_was_told_is_not_told_again() -> None:
    encoder = RawStream("req_1")
    encoder.feed(RawFrame(ERROR_FRAME, last=True))
    assert encoder.feed(Failed(code=ErrorCode.OVERLOADED, message="busy")) == b""
    assert encoder.over


def test_an_error_instead_of_a_stream_is_refused_in_the_upstreams_words() -> None:
    answer = RawAnswer(body=ERROR, status=529)
    error = RawStream("req_1").refusal(
        Failed(code=ErrorCode.OVERLOADED, message="busy", answer=answer)
    )
    assert isinstance(error, RawError)
    assert error.answer is answer
    assert RawStream("req_1").refusal(Started(prompt_tokens=1)) is None


def test_an_error_behind_a_sign_of_life_is_a_frame_of_one_line() -> None:
    answer = RawAnswer(body=b'{"error":\n{"message":"busy"}}\n', status=529)
    failed = Failed(code=ErrorCode.OVERLOADED, message="busy", answer=answer)
    assert RawStream("req_1").feed(failed) == (
        b'event: error\ndata: {"error": {"message":"busy"}}\n\n'
    )
