"""Messages to an upstream that speaks their API: the same bytes on both sides, both ways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest

from tests.acceptance.client import Client
from tests.acceptance.stack import Gateway, Stack, ending, eventually, insert_upstream
from tests.acceptance.teams import Member, make_member, set_price
from tests.raw_messages import ERROR, ERROR_FRAME, MESSAGE, START, STREAM, named, request, stream
from tests.raw_upstream import EVENT_STREAM, RawUpstream, Reply, raw_upstream

pytestmark = pytest.mark.acceptance

ALIAS = "claude-far"
THEIRS = "claude-9-20990101"
KEY = "upstream-key-of-the-operator"
HEADERS = {
    "content-type": "application/json",
    "anthropic-beta": "holograms-2099-01-01,aurora",
    "anthropic-version": "2099-01-01",
    "cookie": "who=me",
    "user-agent": "claude-cli/9",
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[RawUpstream]:
    with raw_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def far(stack: Stack, gateway: Gateway, upstream: RawUpstream) -> Iterator[str]:
    """Return a model that the upstream runs."""
    insert_upstream(
        stack.layout.database_url, "raw", base_url=upstream.url, key="${env:RAW_KEY}", retries=0
    )
    name = stack.add_model(
        "vendor/Far-1",
        backend="anthropic",
        aliases=[ALIAS],
        upstream_id="raw",
        upstream_model=THEIRS,
        capacity=4,
    )
    set_price(stack, name)
    with (
        ending(stack.start_worker(name, RAW_KEY=KEY)),
        ending(stack.start_clerk(SETTLE_AFTER_S="2")),
    ):
        gateway.wait_for_model(name)
        yield name


@pytest.fixture
def member(stack: Stack) -> Member:
    return make_member(stack)


@pytest.fixture
def caller(gateway: Gateway, member: Member) -> Iterator[Client]:
    """Return a client of a team of its own."""
    made = Client(gateway.url, member.key)
    with made.http:
        yield made


def send(caller: Client, body: bytes, path: str = "/v1/messages") -> httpx.Response:
    return caller.http.post(path, content=body, headers=HEADERS)


def recorded(caller: Client, answer: httpx.Response) -> dict[str, Any]:
    """Wait until a request is accounted for, and return what is known of it."""
    request_id = answer.headers["request-id"].removeprefix("req_")

    def look() -> dict[str, Any] | None:
        found = caller.http.get(f"/control/v1/activity/{request_id}")
        detail: dict[str, Any] = found.json()
        return detail if found.is_success and detail["cost_micros"] is not None else None

    return eventually(look, f"request {request_id} is accounted for") or {}


def test_a_stream_passes_byte_for_byte(
    upstream: RawUpstream, far: str, caller: Client, member: Member
) -> None:
    upstream.reply(*STREAM, kind=EVENT_STREAM, headers={"set-cookie": "a=b", "x-internal": "1"})
    answer = send(caller, request(ALIAS, stream=True), "/v1/messages?beta=true")
    assert answer.status_code == httpx.codes.OK
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.content == stream(far)
    assert not {"set-cookie", "x-internal"} & set(answer.headers)
    asked = upstream.asked[-1]
    assert (asked.path, asked.body) == ("/v1/messages?beta=true", request(THEIRS, stream=True))
    assert asked.header("anthropic-beta") == [HEADERS["anthropic-beta"]]
    assert asked.header("anthropic-version") == [HEADERS["anthropic-version"]]
    assert asked.header("user-agent") == [HEADERS["user-agent"]]
    assert asked.header("x-api-key") == [KEY]
    assert asked.header("cookie") == []
    assert member.key not in str(asked)
    detail = recorded(caller, answer)
    assert (detail["prompt_tokens"], detail["completion_tokens"]) == (19, 7)
    assert detail["cached_prompt_tokens"] == 5
    # Eleven plain tokens and three written, five cached at a tenth, seven of output at twice.
    assert detail["cost_micros"] == 29
    assert detail["body_json"] == json.loads(request(ALIAS, stream=True))
    assert detail["result_json"]["content"][1]["type"] == "hologram"
    assert KEY not in json.dumps(detail)


def test_a_message_passes_byte_for_byte(upstream: RawUpstream, far: str, caller: Client) -> None:
    upstream.reply(MESSAGE)
    answer = send(caller, request(far, stream=False))
    assert answer.content == named(MESSAGE, far)
    assert upstream.asked[-1].body == request(THEIRS, stream=False)
    detail = recorded(caller, answer)
    assert (detail["model"], detail["completion_tokens"]) == (far, 7)
    assert detail["result_json"] == json.loads(named(MESSAGE, far))


def test_a_count_passes_byte_for_byte(upstream: RawUpstream, far: str, caller: Client) -> None:
    said = b'{ "input_tokens":12 , "context_management":{"original_input_tokens":99}}\n'
    upstream.reply(said)
    answer = send(caller, b'{"messages":[{}], "model":"claude-far"}', "/v1/messages/count_tokens")
    assert (answer.status_code, answer.content) == (httpx.codes.OK, said)
    asked = upstream.asked[-1]
    assert asked.path == "/v1/messages/count_tokens"
    assert asked.body == b'{"messages":[{}], "model":"claude-9-20990101"}'


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_a_body_that_says_a_thing_twice_goes_nowhere(
    upstream: RawUpstream, far: str, caller: Client, path: str
) -> None:
    body = request(far, stream=False).replace(b'"max_tokens":64', b'"max_tokens":64,"max_tokens":1')
    asked = len(upstream.asked)
    answer = send(caller, body, path)
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert "`max_tokens` comes twice" in answer.json()["error"]["message"]
    assert len(upstream.asked) == asked


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("streamed", [True, False])
def test_an_error_passes_with_its_status_and_its_own_words(
    upstream: RawUpstream, far: str, caller: Client, path: str, streamed: bool
) -> None:
    upstream.reply(ERROR, status=529, headers={"retry-after": "7", "request-id": "req_01"})
    answer = send(caller, request(far, stream=streamed), path)
    assert (answer.status_code, answer.content) == (529, ERROR)
    assert answer.headers["retry-after"] == "7"
    assert answer.headers["tandem-upstream-request-id"] == "req_01"
    assert answer.headers["request-id"].startswith("req_")
    assert answer.headers["request-id"] != "req_01"


def test_an_error_in_a_stream_passes_and_is_told_once(
    upstream: RawUpstream, far: str, caller: Client
) -> None:
    upstream.reply(START, ERROR_FRAME, kind=EVENT_STREAM)
    answer = send(caller, request(far, stream=True))
    assert answer.content == named(START, far) + ERROR_FRAME
    assert recorded(caller, answer)["error"]


def test_a_stream_that_breaks_off_ends_with_an_error(
    upstream: RawUpstream, far: str, caller: Client
) -> None:
    upstream.reply(START, kind=EVENT_STREAM, cut=True)
    answer = send(caller, request(far, stream=True))
    begun, _, rest = answer.content.partition(named(START, far))
    assert begun == b""
    assert rest.startswith(b"event: error\ndata: {")
    assert recorded(caller, answer)["cost_micros"] == 0


def test_who_leaves_ends_the_answer_upstream(
    upstream: RawUpstream, far: str, caller: Client
) -> None:
    def endless() -> Iterator[bytes]:
        yield START
        while not upstream.left.is_set():
            yield b'event: ping\ndata: {"type": "ping"}\n\n'

    upstream.left.clear()
    upstream.replies.append(Reply(pieces=endless(), kind=EVENT_STREAM))
    body = request(far, stream=True)
    with caller.http.stream("POST", "/v1/messages", content=body, headers=HEADERS) as answer:
        next(answer.iter_bytes())
    assert upstream.left.wait(30)


def test_the_official_client_reads_what_passes(
    upstream: RawUpstream, far: str, gateway: Gateway, member: Member
) -> None:
    upstream.reply(b"".join(STREAM[:1]), *STREAM[1:6], *STREAM[-2:], kind=EVENT_STREAM)
    with (
        anthropic.Anthropic(base_url=gateway.url, api_key=member.key) as sdk,
        sdk.messages.stream(
            model=ALIAS, max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        ) as events,
    ):
        message = events.get_final_message()
    assert (message.model, message.id, message.stop_reason) == (far, "msg_01Upstream", "end_turn")
    assert message.usage.output_tokens == 7


def test_rows_of_a_batch_pass_byte_for_byte(
    upstream: RawUpstream, far: str, caller: Client
) -> None:
    # What stands around the row's own request is the batch's.
    row = request(ALIAS, stream=False).strip()
    upstream.reply(MESSAGE)
    upstream.reply(
        b'{"error":{"type":"invalid_request_error","message":"No \\u00fc."}}', status=400
    )
    rows = b",".join(b'{"custom_id":"%b","params":%b}' % (name, row) for name in (b"a", b"b"))
    before = len(upstream.asked)
    made = send(caller, b'{"requests":[%b]}' % rows, "/v1/messages/batches").json()
    path = f"/v1/messages/batches/{made['id']}"

    def ended() -> bool:
        return bool(caller.http.get(path).json()["processing_status"] == "ended")

    eventually(ended, "the batch ends")
    asked = upstream.asked[before:]
    assert [each.body for each in asked] == [request(THEIRS, stream=False).strip()] * 2
    assert asked[0].header("anthropic-beta") == [HEADERS["anthropic-beta"]]
    lines = caller.http.get(f"{path}/results").content.splitlines()
    said = b" ".join(named(MESSAGE, far).splitlines())
    (whole,) = [line for line in lines if b'"succeeded"' in line]
    assert said in whole
    (errored,) = [json.loads(line) for line in lines if b'"errored"' in line]
    assert errored["result"]["error"]["error"] == {
        "type": "invalid_request_error",
        "message": "No ü.",
    }


def test_no_key_is_in_a_log(stack: Stack, far: str, member: Member) -> None:
    logs = [path.read_text(errors="replace") for path in stack.layout.logs.iterdir()]
    assert logs
    assert not any(KEY in log or member.key in log for log in logs)
