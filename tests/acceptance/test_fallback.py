"""Another model in the place of one that cannot answer, as the official clients see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import anthropic
import httpx
import openai
import pytest

from tests.acceptance.client import Client, body
from tests.acceptance.routes import start_worker
from tests.acceptance.stack import Gateway, Stack, ending, eventually, insert_upstream
from tests.acceptance.teams import MICROS, make_member, set_price
from tests.acceptance.test_images import inline
from tests.contracts.requests import make_entry
from tests.upstream_server import (
    Reply,
    UpstreamServer,
    error_reply,
    stream_reply,
    upstream_server,
)

pytestmark = pytest.mark.acceptance

NEAR = "fallback/near"
FAR = {"openai": "fallback/far-openai", "anthropic": "fallback/far-anthropic"}
FIRST, SECOND, THEIRS = "fallback/first", "fallback/second", "claude-second"
# No engine runs these.
ABSENT, SEEING, LINKED = "fallback/absent", "fallback/seeing", "fallback/linked"
LEFT_ALONE = "fallback/left-alone"
TEXT = "All work and no play makes Jack a dull boy."
OVERLOADED = {"type": "overloaded_error", "message": "Far is full."}
INVALID = {"type": "invalid_request_error", "message": "Far knows no such thing."}
BEGINNING: tuple[dict[str, Any], ...] = (
    {"type": "message_start", "message": {"usage": {"input_tokens": 3}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
)
END: tuple[dict[str, Any], ...] = (
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
)


class Said(NamedTuple):
    """An answer: whom its header and its body name, and its text."""

    header: str | None
    model: str
    text: str


@pytest.fixture(scope="module")
def upstream() -> Iterator[UpstreamServer]:
    """Return an upstream that answers unless told otherwise."""
    with upstream_server(make_entry(context_tokens=100_000)) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def _models(stack: Stack, gateway: Gateway, upstream: UpstreamServer) -> Iterator[None]:
    url = stack.layout.database_url
    for dialect, path in (("openai", "/v1"), ("anthropic", "")):
        insert_upstream(url, f"flaky-{dialect}", base_url=f"{upstream.url}{path}", retries=0)
    stack.add_model(NEAR)
    stack.add_model(SECOND, **of("anthropic"), upstream_model=THEIRS)
    stack.add_model(FIRST, **of("anthropic"), fallback_id=SECOND)
    for dialect, name in FAR.items():
        stack.add_model(name, **of(dialect), fallback_id=NEAR)
    stack.add_model(LEFT_ALONE, **of("openai"), fallback_id=NEAR)
    stack.add_model(ABSENT, fallback_id=NEAR)
    stack.add_model(SEEING, fallback_id=NEAR, vision=True)
    stack.add_model(LINKED, fallback_id=FAR["openai"])
    set_price(stack, NEAR)
    dear = {"input_micros_per_mtok": 100 * MICROS, "output_micros_per_mtok": 100 * MICROS}
    set_price(stack, FAR["openai"], **dear)
    with (
        ending(start_worker(stack, gateway, [NEAR, FIRST, SECOND, *FAR.values(), LEFT_ALONE])),
        ending(stack.start_clerk(SETTLE_AFTER_S="2")),
    ):
        yield


def of(dialect: str) -> dict[str, Any]:
    """Return the fields of a model that the upstream runs."""
    return {"backend": dialect, "upstream_id": f"flaky-{dialect}"}


@pytest.fixture(params=list(FAR.values()), ids=list(FAR))
def far(request: pytest.FixtureRequest, client: Client, upstream: UpstreamServer) -> str:
    """Return each of the models there in turn, which has answered just now."""
    name = str(request.param)
    assert_answers(client, name)
    return name


def assert_answers(client: Client, model: str) -> None:
    """Ask a model that answers by itself, so that failures before do not count any more."""
    with client.stream(model, "Hello.") as stream:
        frames = stream.rest()
    assert frames[0].data["message"]["model"] == model
    assert "tandem-fallback" not in stream.response.headers


def by_messages(sdk: anthropic.Anthropic, _: openai.OpenAI, model: str, *, streamed: bool) -> Said:
    asked: dict[str, Any] = {
        "model": model,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hello."}],
    }
    if streamed:
        with sdk.messages.stream(**asked) as stream:
            message = stream.get_final_message()
            headers = stream.response.headers
    else:
        raw = sdk.messages.with_raw_response.create(**asked)
        message, headers = raw.parse(), raw.headers
    text = "".join(block.text for block in message.content if block.type == "text")
    return Said(headers.get("tandem-fallback"), message.model, text)


def by_chat(_: anthropic.Anthropic, sdk: openai.OpenAI, model: str, *, streamed: bool) -> Said:
    raw = sdk.chat.completions.with_raw_response.create(
        model=model, messages=[{"role": "user", "content": "Hello."}], stream=streamed
    )
    header, answer = raw.headers.get("tandem-fallback"), raw.parse()
    if isinstance(answer, openai.Stream):
        chunks = list(answer)
        (named,) = {chunk.model for chunk in chunks}
        return Said(header, named, "".join(each.choices[0].delta.content or "" for each in chunks))
    return Said(header, answer.model, answer.choices[0].message.content or "")


def by_responses(_: anthropic.Anthropic, sdk: openai.OpenAI, model: str, *, streamed: bool) -> Said:
    raw = sdk.responses.with_raw_response.create(model=model, input="Hello.", stream=streamed)
    header, answer = raw.headers.get("tandem-fallback"), raw.parse()
    if isinstance(answer, openai.Stream):
        last = list(answer)[-1]
        assert last.type == "response.completed"
        answer = last.response
    # It is kept, and continued, as what it is.
    assert sdk.responses.retrieve(answer.id).model == answer.model
    return Said(header, answer.model, answer.output_text)


APIS: list[Callable[..., Said]] = [by_messages, by_chat, by_responses]


def fallbacks(client: Client, model: str) -> float:
    """Return how many requests of a model its fallback has answered."""
    start = f'tandem_fallbacks_total{{fallback="{NEAR}",model="{model}"}} '
    lines = client.http.get("/metrics").text.splitlines()
    return sum(float(line.removeprefix(start)) for line in lines if line.startswith(start))


def refused(response: httpx.Response, status: int) -> str:
    """Return what an error says that has to have this status and come from no other model."""
    assert response.status_code == status, response.text
    assert "tandem-fallback" not in response.headers
    return str(response.json()["error"]["message"])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_the_fallback_answers_where_an_upstream_fails(
    sdk: anthropic.Anthropic,
    chat: openai.OpenAI,
    upstream: UpstreamServer,
    far: str,
    api: Callable[..., Said],
    streamed: bool,
) -> None:
    for reply in (error_reply(529, OVERLOADED), Reply(cut=True), error_reply(429, OVERLOADED)):
        upstream.replies.append(reply)
        assert api(sdk, chat, far, streamed=streamed) == Said(NEAR, NEAR, TEXT)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_the_fallback_answers_where_there_is_no_engine(
    sdk: anthropic.Anthropic,
    chat: openai.OpenAI,
    client: Client,
    api: Callable[..., Said],
    streamed: bool,
) -> None:
    before = fallbacks(client, ABSENT)
    assert api(sdk, chat, ABSENT, streamed=streamed) == Said(NEAR, NEAR, TEXT)
    assert fallbacks(client, ABSENT) == before + 1


def test_an_upstream_that_is_left_alone_is_not_asked(
    client: Client, upstream: UpstreamServer
) -> None:
    upstream.replies.extend([error_reply(500, OVERLOADED)] * 5)
    for _ in range(5):
        assert client.ask(LEFT_ALONE, "Hello.").json()["model"] == NEAR
    received = len(upstream.received)
    answer = client.ask(LEFT_ALONE, "Hello.")
    assert answer.headers["tandem-fallback"] == answer.json()["model"] == NEAR
    assert len(upstream.received) == received


def test_several_answers_are_all_the_fallbacks(chat: openai.OpenAI) -> None:
    said = chat.chat.completions.create(
        model=ABSENT, messages=[{"role": "user", "content": "Hello."}], n=3
    )
    assert said.model == NEAR
    assert [choice.message.content for choice in said.choices] == [TEXT] * 3


def test_what_is_wrong_with_a_request_is_told(
    client: Client, upstream: UpstreamServer, far: str
) -> None:
    upstream.replies.append(error_reply(400, INVALID))
    assert refused(client.ask(far, "Hello."), 400) == INVALID["message"]


def test_an_answer_that_has_begun_is_not_begun_anew(
    client: Client, upstream: UpstreamServer
) -> None:
    far = FAR["anthropic"]
    assert_answers(client, far)
    upstream.replies.append(stream_reply(*BEGINNING, named=True, cut=True))
    with client.stream(far, "Hello.") as stream:
        frames = stream.rest()
    assert [frame.data["type"] for frame in frames] == [
        *(frame["type"] for frame in BEGINNING),
        "error",
    ]
    assert "tandem-fallback" not in stream.response.headers


def test_messages_go_on_to_another_upstream_of_their_api_as_they_were_sent(
    client: Client, upstream: UpstreamServer
) -> None:
    upstream.replies.append(error_reply(529, OVERLOADED))
    upstream.replies.append(stream_reply(*BEGINNING, *END, named=True))
    hologram = {"type": "hologram", "data": "unknown here"}
    asked = {
        "model": FIRST,
        "max_tokens": 9,
        "stream": True,
        "messages": [{"role": "user", "content": [hologram]}],
        "betas": ["aurora"],
    }
    answer = client.http.post("/v1/messages", json=asked)
    assert answer.headers["tandem-fallback"] == SECOND
    assert '"text": "Hi"' in answer.text
    first, second = upstream.received[-2:]
    assert first.body == asked
    assert second.body == asked | {"model": THEIRS}


def test_a_fallback_that_fails_too_leaves_the_models_own_words(
    client: Client, upstream: UpstreamServer
) -> None:
    upstream.replies.append(error_reply(529, OVERLOADED, retry_after="7"))
    upstream.replies.append(error_reply(400, INVALID))
    answer = client.ask(FIRST, "Hello.")
    assert refused(answer, 529) == OVERLOADED["message"]
    assert answer.headers["retry-after"] == "7"


def test_a_request_goes_no_further_than_to_one_other_model(
    client: Client, upstream: UpstreamServer
) -> None:
    assert_answers(client, FAR["openai"])
    upstream.replies.append(error_reply(529, OVERLOADED))
    assert LINKED in refused(client.ask(LINKED, "Hello."), 503)


def test_images_are_for_models_that_see(client: Client) -> None:
    image = body(SEEING, "") | {"messages": [{"role": "user", "content": [inline()]}]}
    assert SEEING in refused(client.http.post("/v1/messages", json=image), 503)
    assert client.ask(SEEING, "Hello.").json()["model"] == NEAR


def test_a_key_is_not_led_to_a_model_that_it_may_not_use(stack: Stack, gateway: Gateway) -> None:
    for allowed, status in (([ABSENT], 503), ([ABSENT, NEAR], 200)):
        caller = Client(gateway.url, make_member(stack, key={"allowed_models": allowed}).key)
        with caller.http:
            assert caller.ask(ABSENT, "Hello.").status_code == status


def test_it_costs_what_the_fallback_costs_and_the_trail_has_both(
    stack: Stack, gateway: Gateway, upstream: UpstreamServer, client: Client
) -> None:
    far = FAR["openai"]
    assert_answers(client, far)
    caller = Client(gateway.url, make_member(stack).key)
    with caller.http:
        upstream.replies.append(error_reply(529, OVERLOADED))
        answer = caller.ask(far, "Hello.")
        assert answer.headers["tandem-fallback"] == NEAR
        path = f"/control/v1/activity/{answer.headers['request-id']}"

        def billed() -> dict[str, Any] | None:
            found = caller.http.get(path)
            detail: dict[str, Any] = found.json()
            return detail if found.is_success and detail["cost_micros"] is not None else None

        detail = eventually(billed, "the request is billed") or {}
    assert (detail["model"], detail["requested_model"]) == (NEAR, far)
    assert (detail["status"], detail["attempts"], detail["error"]) == ("completed", 2, None)
    assert detail["body_json"]["model"] == far
    assert detail["cached_prompt_tokens"] == 0
    assert detail["cost_micros"] == detail["prompt_tokens"] + 2 * detail["completion_tokens"]


def test_who_cannot_pay_for_the_fallback_is_told_of_the_model(
    stack: Stack, gateway: Gateway
) -> None:
    member = make_member(stack, prepaid=True)
    caller = Client(gateway.url, member.key)
    with caller.http:
        assert ABSENT in refused(caller.ask(ABSENT, "Hello.", max_tokens=10), 503)
        stack.manage("top_up", member.team_name, "1.00", "--nonce", "fallback")
        assert caller.ask(ABSENT, "Hello.", max_tokens=10).json()["model"] == NEAR
