"""`/v1/chat/completions` through OpenAI's own SDK."""

from __future__ import annotations

import base64
import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessageFunctionToolCall
from openai.types.chat.chat_completion import Choice
from pydantic import BaseModel

from gateway.dialects.placeholder import OMITTED
from tests.acceptance.client import Client, script
from tests.acceptance.stack import Gateway, Stack, ending, eventually
from tests.acceptance.test_images import PNG
from tests.acceptance.test_tools import CALL, SAID, WEATHER

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": "get_weather", "parameters": WEATHER["input_schema"]},
    },
    {"type": "function", "function": {"name": "ping"}},
]
ENDLESS = script(tokens=10_000, token_delay_s=0.05)

either_way = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


class City(BaseModel):
    """What an answer is parsed into."""

    name: str
    is_capital: bool


def asked(model: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": content}]} | fields


def answer(client: openai.OpenAI, body: dict[str, Any], *, streamed: bool) -> ChatCompletion:
    """Return the answer, a streamed one as the SDK adds it up."""
    if not streamed:
        whole: ChatCompletion = client.chat.completions.create(**body)
        return whole
    with client.chat.completions.stream(**body, stream_options={"include_usage": True}) as stream:
        return stream.get_final_completion()


def calls_of(choice: Choice) -> list[ChatCompletionMessageFunctionToolCall]:
    calls = choice.message.tool_calls or []
    return [call for call in calls if isinstance(call, ChatCompletionMessageFunctionToolCall)]


@either_way
def test_it_gets_an_answer(chat: openai.OpenAI, model: str, streamed: bool) -> None:
    said = answer(chat, asked(model, script(text="Paris.")), streamed=streamed)
    assert said.id.startswith("chatcmpl-")
    assert said.model == model
    (choice,) = said.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "Paris.")
    assert choice.message.refusal is None
    assert choice.finish_reason == "stop"
    assert said.service_tier == "default"
    assert said.usage is not None
    assert said.usage.completion_tokens == 1
    assert said.usage.total_tokens == said.usage.prompt_tokens + 1
    assert said.usage.prompt_tokens_details is not None
    assert said.usage.prompt_tokens_details.cached_tokens == 0


def test_an_alias_is_answered_as_its_model(chat: openai.OpenAI, engine_model: str) -> None:
    said = answer(chat, asked("scripted", script(text="Paris.")), streamed=False)
    assert said.model == engine_model


@either_way
def test_several_answers_are_told_apart(chat: openai.OpenAI, model: str, streamed: bool) -> None:
    content = script(text="One two.")
    alone = answer(chat, asked(model, content), streamed=False).usage
    said = answer(chat, asked(model, content, n=3), streamed=streamed)
    assert [choice.index for choice in said.choices] == [0, 1, 2]
    assert {choice.message.content for choice in said.choices} == {"One two."}
    assert alone is not None
    assert said.usage is not None
    assert said.usage.completion_tokens == 3 * alone.completion_tokens


def test_several_answers_count_the_prompt_once(chat: openai.OpenAI, model: str) -> None:
    content = script(text="One two.")
    alone = answer(chat, asked(model, content), streamed=False).usage
    several = answer(chat, asked(model, content, n=3), streamed=False).usage
    assert alone is not None
    assert several is not None
    assert several.prompt_tokens == alone.prompt_tokens


def test_usage_is_streamed_only_where_asked_for(chat: openai.OpenAI, model: str) -> None:
    body = asked(model, script(text="One two."), stream=True)
    *_, last = chat.chat.completions.create(**body)
    assert last.choices[0].finish_reason == "stop"
    assert last.usage is None
    *_, end = chat.chat.completions.create(**body, stream_options={"include_usage": True})
    assert end.choices == []
    assert end.usage is not None


@either_way
@pytest.mark.parametrize("stop", ["two", ["x", "y", "z", "zz", "two"]])
def test_bug_12_a_stop_of_any_number_ends_the_answer(
    chat: openai.OpenAI, model: str, streamed: bool, stop: str | list[str]
) -> None:
    said = answer(chat, asked(model, script(text="One two three"), stop=stop), streamed=streamed)
    assert said.choices[0].message.content == "One "
    assert said.choices[0].finish_reason == "stop"


def test_an_answer_is_cut_where_it_may_not_go_on(chat: openai.OpenAI, model: str) -> None:
    said = answer(chat, asked(model, script(tokens=9), max_tokens=3), streamed=False)
    assert said.choices[0].finish_reason == "length"
    assert said.usage is not None
    assert said.usage.completion_tokens == 3


def test_without_a_limit_an_answer_may_fill_the_context(
    stack: Stack, gateway: Gateway, chat: openai.OpenAI
) -> None:
    model = stack.add_model("chats-briefly", context_tokens=40)
    with ending(stack.start_worker(model)):
        gateway.wait_for_model(model)
        said = answer(chat, asked(model, script(tokens=1000)), streamed=False)
        assert said.choices[0].finish_reason == "length"
        assert said.usage is not None
        assert said.usage.total_tokens == 40
        with pytest.raises(openai.BadRequestError) as caught:
            answer(chat, asked(model, "x" * 400), streamed=False)
    assert "prompt is too long: 100 tokens > " in caught.value.message
    assert caught.value.code == "context_length_exceeded"


@either_way
def test_log_probabilities_are_told(chat: openai.OpenAI, model: str, streamed: bool) -> None:
    body = asked(model, script(text="One two."), logprobs=True, top_logprobs=2)
    logprobs = answer(chat, body, streamed=streamed).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [token.token for token in logprobs.content] == ["One", " two."]
    assert all(len(token.top_logprobs) == 2 for token in logprobs.content)
    assert bytes(logprobs.content[1].bytes or ()) == b" two."


@either_way
def test_bug_65_a_call_ends_with_tool_calls(
    chat: openai.OpenAI, model: str, streamed: bool
) -> None:
    body = asked(model, script(text="", tool_calls=[CALL, {"name": "ping"}]), tools=TOOLS)
    (choice,) = answer(chat, body, streamed=streamed).choices
    assert choice.finish_reason == "tool_calls"
    first, second = calls_of(choice)
    assert first.id.startswith("call_")
    assert first.id != second.id
    assert (first.function.name, json.loads(first.function.arguments)) == ("get_weather", SAID)
    assert (second.function.name, json.loads(second.function.arguments)) == ("ping", {})


def test_parallel_calls_can_be_switched_off(chat: openai.OpenAI, model: str) -> None:
    body = asked(model, script(text="", tool_calls=[CALL, {"name": "ping"}]), tools=TOOLS)
    (choice,) = answer(chat, body | {"parallel_tool_calls": False}, streamed=False).choices
    assert len(choice.message.tool_calls or ()) == 1


def test_a_calls_result_goes_back_to_the_model(chat: openai.OpenAI, model: str) -> None:
    body = asked(model, script(text="", tool_calls=[CALL], echo_results=True), tools=TOOLS)
    (choice,) = answer(chat, body, streamed=False).choices
    (call,) = calls_of(choice)
    result = {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"}
    turns = [*body["messages"], choice.message.to_dict(), result]
    said = answer(chat, body | {"messages": turns}, streamed=False)
    assert said.choices[0].message.content == "18 degrees"


@either_way
def test_reasoning_is_told_apart_from_the_answer(
    chat: openai.OpenAI, gifted: str, streamed: bool
) -> None:
    body = asked(gifted, script(thinking="Hm, well.", text="Paris."))
    said = answer(chat, body, streamed=streamed)
    message = said.choices[0].message.model_dump()
    assert message["content"] == "Paris."
    assert message["reasoning_content"] == message["reasoning"] == "Hm, well."
    assert said.usage is not None
    assert said.usage.completion_tokens_details is not None
    assert said.usage.completion_tokens_details.reasoning_tokens == 2


def test_reasoning_can_be_switched_off_and_hidden(chat: openai.OpenAI, gifted: str) -> None:
    body = asked(gifted, script(thinking="Hm, well.", text="Paris."))
    off = answer(chat, body | {"reasoning_effort": "none"}, streamed=False)
    assert off.usage is not None
    assert off.usage.completion_tokens == 1
    hidden = answer(chat, body | {"extra_body": {"include_reasoning": False}}, streamed=False)
    assert hidden.usage is not None
    assert hidden.usage.completion_tokens == 3
    assert hidden.choices[0].message.model_dump()["reasoning"] is None


def test_an_image_reaches_a_model_that_sees(chat: openai.OpenAI, model: str, gifted: str) -> None:
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    seen = answer(chat, asked(gifted, parts), streamed=False).usage
    assert seen is not None
    # The scripted engine counts four bytes as a token.
    assert seen.prompt_tokens > len(PNG) / 4
    blind = answer(chat, asked(model, parts), streamed=False).usage
    assert blind is not None
    assert len(OMITTED.text) / 4 < blind.prompt_tokens < len(PNG) / 4


def test_an_image_that_is_none_is_named(chat: openai.OpenAI, gifted: str) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(openai.BadRequestError) as caught:
        answer(chat, asked(gifted, [part]), streamed=False)
    assert caught.value.param == "messages[0].content[0].image_url.url"


def test_a_wrong_field_is_named(chat: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        answer(chat, asked(model, "hi", n=0), streamed=False)
    error = caught.value
    assert error.param == "n"
    assert error.type == "invalid_request_error"
    assert error.code == "invalid_value"
    assert (error.request_id or "").startswith("req_")


def test_an_unknown_model_is_not_found(chat: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        answer(chat, asked("gpt-0", "hi"), streamed=False)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_fields_without_effect_are_told(client: Client, model: str) -> None:
    told = client.http.post("/v1/chat/completions", json=asked(model, "hi", best_of=2))
    assert told.headers["tandem-ignored-fields"] == "best_of"


def test_a_broken_stream_ends_with_an_error(
    stack: Stack, gateway: Gateway, chat: openai.OpenAI
) -> None:
    model = stack.add_model("chats-and-dies")
    content = script(tokens=100, token_delay_s=0.01, die_at=10)
    with ending(stack.start_worker(model)):
        gateway.wait_for_model(model)
        stream = chat.chat.completions.create(**asked(model, content, stream=True))
        with pytest.raises(openai.APIError) as caught:
            list(stream)
    assert caught.value.type == "server_error"


def test_a_client_that_leaves_ends_every_answer(
    stack: Stack, gateway: Gateway, chat: openai.OpenAI
) -> None:
    model = stack.add_model("chats-for-ever")
    with ending(stack.start_worker(model)):
        gateway.wait_for_model(model)
        body = asked(model, ENDLESS, stream=True, n=3)
        with chat.chat.completions.create(**body) as stream:
            seen: set[int] = set()
            for chunk in stream:
                seen |= {choice.index for choice in chunk.choices if choice.delta.content}
                if len(seen) == 3:
                    break
            stack.wait_for_in_flight(model, 3)
        stack.wait_for_in_flight(model, 0)
    eventually(lambda: gateway.in_flight() == 0, "the gateway waits for nothing")


@either_way
def test_bug_49_flex_is_applied_and_the_tier_that_served_is_told(
    chat: openai.OpenAI, model: str, streamed: bool
) -> None:
    body = asked(model, script(text="Paris."), service_tier="flex")
    said = answer(chat, body, streamed=streamed)
    assert said.service_tier == "flex"
    assert said.choices[0].message.content == "Paris."


@either_way
def test_flex_without_room_is_refused_and_runs_nothing(
    stack: Stack, chat: openai.OpenAI, streamed: bool
) -> None:
    """Even a stream is refused by its status: pings come only once it has begun."""
    model = stack.add_model(f"chats-when-free-{streamed}", capacity=1)
    patient = stack.start_gateway(FLEX_WAIT_S="0.5", PING_INTERVAL_S="0.1")
    with ending(patient.server), ending(stack.start_worker(model)):
        patient.wait_for_model(model)
        client = chat.with_options(base_url=f"{patient.url}/v1")
        with client.chat.completions.create(**asked(model, ENDLESS, stream=True)) as busy:
            next(iter(busy))
            body = asked(model, "hi", service_tier="flex", stream=streamed)
            with pytest.raises(openai.RateLimitError) as caught:
                client.chat.completions.create(**body)
            assert stack.in_flight(model) == 1
    assert caught.value.code == "resource_unavailable"
    assert caught.value.message.startswith("Error code: 429")
    assert "Resource Unavailable" in caught.value.message


@pytest.mark.engine
@either_way
def test_a_real_model_answers(chat: openai.OpenAI, real_model: str, streamed: bool) -> None:
    body = asked(real_model, "What is the capital of France?", temperature=0, max_tokens=20, n=2)
    for choice in answer(chat, body, streamed=streamed).choices:
        assert "Paris" in (choice.message.content or "")


@pytest.mark.engine
def test_a_real_model_counts_the_prompt_of_several_answers_once(
    chat: openai.OpenAI, real_model: str
) -> None:
    body = asked(real_model, "What is the capital of France?", max_tokens=1, n=2)
    usage = answer(chat, body, streamed=False).usage
    assert usage is not None
    assert usage.prompt_tokens < 60


@pytest.mark.engine
@either_way
def test_a_real_model_tells_log_probabilities(
    chat: openai.OpenAI, real_model: str, streamed: bool
) -> None:
    body = asked(real_model, "What is the capital of France?", temperature=0, max_tokens=20)
    body |= {"logprobs": True, "top_logprobs": 2, "n": 2, "seed": 1}
    for choice in answer(chat, body, streamed=streamed).choices:
        assert choice.message.content
        assert choice.logprobs is not None
        tokens = choice.logprobs.content or []
        assert "".join(token.token for token in tokens) == choice.message.content
        assert all(token.logprob <= 0 for token in tokens)


@pytest.mark.engine
def test_a_real_model_without_a_limit_stops_by_itself(chat: openai.OpenAI, real_model: str) -> None:
    said = answer(chat, asked(real_model, "Say hi.", temperature=0), streamed=False)
    assert said.choices[0].finish_reason == "stop"


@pytest.mark.engine
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
def test_a_real_model_is_made_to_call(chat: openai.OpenAI, real_model: str, choice: Any) -> None:
    body = asked(real_model, "What is the weather in Rome?", temperature=0, max_tokens=200)
    body |= {"tools": TOOLS[:1], "tool_choice": choice, "parallel_tool_calls": False}
    (call,) = calls_of(answer(chat, body, streamed=True).choices[0])
    assert json.loads(call.function.arguments).keys() == {"city", "is_detailed"}


@pytest.mark.engine
def test_a_real_answer_is_parsed(chat: openai.OpenAI, real_model: str) -> None:
    body = asked(real_model, "Is Paris the capital of France?", temperature=0, max_tokens=200)
    parsed = chat.chat.completions.parse(**body, response_format=City).choices[0].message.parsed
    assert isinstance(parsed, City)
    body |= {"response_format": {"type": "json_object"}, "max_tokens": 60}
    said = answer(chat, body, streamed=False).choices[0]
    assert (said.message.content or "").lstrip().startswith("{")
