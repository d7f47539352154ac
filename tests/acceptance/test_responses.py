"""`/v1/responses` in realtime, as OpenAI's SDK calls it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import (
    FunctionToolParam,
    Response,
    ResponseInputParam,
    ResponseStreamEvent,
)
from pydantic import BaseModel

from tests.acceptance.client import script
from tests.acceptance.routes import DIRECT
from tests.acceptance.stack import Gateway, Stack, ending
from tests.openai_types import check_event, check_response

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
CALLS = {"name": "weather", "arguments": ['{"city"', ': "Paris"}']}
# One pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def client(gateway: Gateway, stack: Stack) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"{gateway.url}/v1", api_key=stack.key, max_retries=0, timeout=120
    ) as client:
        yield client


def checked(response: Response) -> Response:
    """Hold a response against the SDK's types, which the SDK itself does not."""
    check_response(response.to_dict(mode="python", exclude_unset=True))
    return response


def told(stream: Iterator[ResponseStreamEvent]) -> list[Any]:
    """Return a stream's events, each held against the SDK's types, and none missing."""
    events = list(stream)
    for event in events:
        check_event(event.to_dict(mode="python", exclude_unset=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


def test_it_answers_a_text(client: OpenAI, model: str) -> None:
    response = checked(
        client.responses.create(
            model=model,
            input=script(text="The answer is 42."),
            instructions="Be brief.",
            metadata={"project": "x"},
            prompt_cache_key="k",
        )
    )

    assert response.output_text == "The answer is 42."
    assert response.status == "completed"
    assert response.model == model
    assert response.id.startswith("resp_")
    assert response.instructions == "Be brief."
    assert response.metadata == {"project": "x"}
    assert response.service_tier == "default"
    assert response.completed_at is not None
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + 4
    assert response._request_id is not None
    assert response._request_id.removeprefix("req_") == response.id.removeprefix("resp_")


def test_an_alias_is_answered_as_its_model(client: OpenAI, engine_model: str) -> None:
    assert client.responses.create(model="scripted", input="hi").model == engine_model


def test_it_streams_what_it_would_answer(client: OpenAI, gifted: str) -> None:
    said = script(text="The answer is 42.", thinking="Hm, well.")

    events = told(client.responses.create(model=gifted, input=said, stream=True))

    final = events[-1].response
    assert events[-1].type == "response.completed"
    assert final.output_text == "The answer is 42."
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "The answer is 42."
    assert len(deltas) == 4
    response = client.responses.create(model=gifted, input=said)
    assert [item.type for item in response.output] == [item.type for item in final.output]
    assert response.usage == final.usage


def test_the_sdks_own_stream_helper_follows_it(client: OpenAI, gifted: str) -> None:
    said = script(text="Let me see.", thinking="Hm.", tool_calls=[CALLS])

    with client.responses.stream(model=gifted, input=said, tools=[WEATHER]) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_response()

    assert events[0] == "response.created"
    assert final.output_text == "Let me see."
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]


@pytest.mark.parametrize("summary", [None, "auto"])
def test_reasoning_is_an_item_of_its_own(client: OpenAI, gifted: str, summary: Any) -> None:
    events = told(
        client.responses.create(
            model=gifted,
            input=script(thinking="Let me think.", text="Yes."),
            reasoning={"effort": "high", "summary": summary},
            stream=True,
        )
    )

    item = events[-1].response.output[0]
    assert item.type == "reasoning"
    parts = item.summary if summary else item.content
    assert parts[0].text == "Let me think."
    kind = "response.reasoning_summary_text.delta" if summary else "response.reasoning_text.delta"
    assert "".join(event.delta for event in events if event.type == kind) == "Let me think."


def test_bug_45_a_call_goes_round_by_items(client: OpenAI, model: str) -> None:
    said = script(text="", tool_calls=[CALLS], echo_results=True)
    events = told(client.responses.create(model=model, input=said, tools=[WEATHER], stream=True))
    call = events[-1].response.output[0]
    assert (call.type, call.name, call.arguments) == (
        "function_call",
        "weather",
        '{"city": "Paris"}',
    )
    assert not [event for event in events if event.type == "response.output_text.delta"]

    again: ResponseInputParam = [
        {"role": "user", "content": said},
        call.to_dict(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "It is sunny."},
    ]
    response = client.responses.create(model=model, input=again, tools=[WEATHER], store=False)

    assert response.output_text == "It is sunny."


def test_bug_24_a_call_goes_round_by_the_previous_response(client: OpenAI, model: str) -> None:
    said = script(text="", tool_calls=[CALLS], echo_results=True)
    first = client.responses.create(model=model, input=said, tools=[WEATHER], instructions="A")
    (call,) = first.output
    assert call.type == "function_call"

    second = checked(
        client.responses.create(
            model=model,
            previous_response_id=first.id,
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}],
            tools=[WEATHER],
        )
    )

    assert second.output_text == "Sunny."
    assert second.previous_response_id == first.id
    assert second.instructions is None


def test_what_goes_on_from_a_response_is_counted_with_it(client: OpenAI, model: str) -> None:
    first = client.responses.create(model=model, input=script(text="One."), tools=[WEATHER])
    asked: dict[str, Any] = {
        "model": model,
        "previous_response_id": first.id,
        "input": script(text="Two."),
        "tools": [WEATHER],
    }

    counted = client.responses.input_tokens.count(**asked)

    usage = client.responses.create(**asked).usage
    assert usage is not None
    assert counted.input_tokens == usage.input_tokens


def test_items_can_be_referred_to(client: OpenAI, model: str) -> None:
    first = client.responses.create(model=model, input=script(text="One."))
    (message,) = first.output
    assert message.id is not None

    again = client.responses.create(
        model=model,
        input=[
            {"role": "user", "content": "?"},
            {"type": "item_reference", "id": message.id},
            {"role": "user", "content": script(text="Two.")},
        ],
    )

    assert again.output_text == "Two."


def test_an_answer_that_was_cut_is_incomplete(client: OpenAI, model: str) -> None:
    said = script(text="one two three four")

    response = checked(client.responses.create(model=model, input=said, max_output_tokens=2))
    events = told(
        client.responses.create(model=model, input=said, max_output_tokens=2, stream=True)
    )

    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text == "one two"
    assert events[-1].type == "response.incomplete"


def test_log_probabilities_are_told_where_included(client: OpenAI, model: str) -> None:
    asked: dict[str, Any] = {
        "model": model,
        "input": script(text="one two"),
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
    }
    response = checked(client.responses.create(**asked))
    events = told(client.responses.create(**asked, stream=True))

    part = response.output[0].content[0]  # type: ignore[union-attr, index]
    assert [each.token for each in part.logprobs] == ["one", " two"]  # type: ignore[union-attr]
    assert len(part.logprobs[0].top_logprobs) == 2  # type: ignore[union-attr, index]
    scored = [event for event in events if event.type == "response.output_text.delta"]
    assert [event.logprobs[0].token for event in scored] == ["one", " two"]


class Answer(BaseModel):
    """What the SDK makes a schema of."""

    value: int


def test_structured_output_is_parsed_by_the_sdk(client: OpenAI, model: str) -> None:
    response = client.responses.parse(
        model=model, input=script(text='{"value": 42}'), text_format=Answer
    )

    assert response.output_parsed == Answer(value=42)


def test_bug_49_flex_is_served_and_said(client: OpenAI, model: str) -> None:
    flex = client.responses.create(model=model, input=script(text="Hi."), service_tier="flex")
    other = client.responses.create(model=model, input=script(text="Hi."), service_tier="priority")

    assert flex.service_tier == "flex"
    assert other.service_tier == "default"


def test_what_has_no_effect_is_named(client: OpenAI, model: str) -> None:
    raw = client.responses.with_raw_response.create(
        model=model,
        input=script(text="Hi."),
        tools=[{"type": "web_search"}, {"type": "custom", "name": "patch"}, WEATHER],
        truncation="auto",
    )

    assert raw.headers["tandem-ignored-fields"] == "truncation, tools%5B0%5D, tools%5B1%5D"
    response = checked(raw.parse())
    assert [tool.type for tool in response.tools] == ["function"]


def test_a_request_of_codex_is_answered(client: OpenAI, model: str) -> None:
    events = told(
        client.responses.create(
            model=model,
            instructions="You are a coding agent.",
            input=[
                {
                    "type": "message",
                    "role": "developer",
                    "content": [{"type": "input_text", "text": "<permissions/>"}],
                },
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": script(text="Done.")}],
                },
            ],
            tools=[
                WEATHER,
                {"type": "namespace", "name": "mcp", "description": "", "tools": []},
                {"type": "web_search", "external_web_access": False},
            ],
            tool_choice="auto",
            parallel_tool_calls=False,
            reasoning={"effort": "medium", "summary": "auto"},
            store=False,
            stream=True,
            include=["reasoning.encrypted_content"],
            prompt_cache_key="0193f5a2",
            text={"verbosity": "low"},
        )
    )

    assert events[-1].response.output_text == "Done."
    assert events[-1].response.to_dict()["store"] is False


@pytest.mark.parametrize(
    ("fields", "status", "param", "code"),
    [
        ({"model": "nobody"}, 404, "model", "model_not_found"),
        ({"input": []}, 400, "input", "invalid_value"),
        ({"temperature": 3}, 400, "temperature", "invalid_value"),
        ({"previous_response_id": "resp_1"}, 404, "previous_response_id", "not_found"),
        ({"background": True, "store": False}, 400, "store", "invalid_value"),
        ({"conversation": "conv_1"}, 400, "conversation", "invalid_value"),
    ],
)
def test_what_is_wrong_is_said_as_the_sdk_reads_it(
    client: OpenAI, model: str, fields: dict[str, Any], status: int, param: str | None, code: str
) -> None:
    asked: dict[str, Any] = {"model": model, "input": "hi", **fields}
    with pytest.raises(openai.APIStatusError) as caught:
        client.responses.create(**asked)

    assert caught.value.status_code == status
    assert caught.value.param == param
    assert caught.value.code == code
    assert caught.value.request_id is not None


def test_an_engine_that_fails_is_said_as_the_sdk_reads_it(
    client: OpenAI, model: str, route: str
) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.responses.create(model=model, input=script(fail_at=0))

    # An upstream that fails is one that is away.
    expected = (500, "server_error") if route == DIRECT else (503, "unavailable")
    assert (caught.value.status_code, caught.value.code) == expected
    assert caught.value.request_id is not None


def test_a_prompt_that_is_too_long_is_said_in_the_words_that_clients_know(
    client: OpenAI, model: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=model, input="x" * 400_100)

    assert caught.value.code == "context_length_exceeded"
    assert "prompt is too long: 100025 tokens > " in caught.value.message


def test_a_broken_stream_ends_with_a_failed_response(client: OpenAI, model: str) -> None:
    events = told(client.responses.create(model=model, input=script(fail_at=2), stream=True))

    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "server_error"
    assert events[-1].response.output_text == "All work"


def test_an_engine_that_dies_ends_the_stream_with_a_failed_response(
    client: OpenAI, stack: Stack, gateway: Gateway
) -> None:
    name = stack.add_model("mortal-responses")
    with ending(stack.start_worker(name)):
        gateway.wait_for_model(name)
        events = told(
            client.responses.create(
                model=name, input=script(die_at=4, token_delay_s=0.1), stream=True
            )
        )

    assert events[-1].type == "response.failed"


def test_images_reach_a_model_that_sees(client: OpenAI, stack: Stack, gateway: Gateway) -> None:
    name = stack.add_model("seeing-responses", vision=True)
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    with ending(stack.start_worker(name)):
        gateway.wait_for_model(name)
        response = client.responses.create(
            model=name,
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": script(text="A dot.")},
                        {"type": "input_image", "image_url": url, "detail": "auto"},
                    ],
                }
            ],
        )

    assert response.output_text == "A dot."


@pytest.mark.engine
def test_a_real_engine_answers(gateway: Gateway, stack: Stack, real_model: str) -> None:
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key=stack.key, max_retries=0)
    asked: dict[str, Any] = {
        "model": real_model,
        "input": "What is the capital of France?",
        "temperature": 0,
        "max_output_tokens": 16,
    }

    response = checked(client.responses.create(**asked))
    events = told(client.responses.create(**asked, stream=True))

    assert "Paris" in response.output_text
    assert events[-1].response.output_text == response.output_text


@pytest.mark.engine
def test_a_real_engine_tells_log_probabilities(
    gateway: Gateway, stack: Stack, real_model: str
) -> None:
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key=stack.key, max_retries=0)

    events = told(
        client.responses.create(
            model=real_model,
            input="What is the capital of France?",
            temperature=0,
            max_output_tokens=16,
            include=["message.output_text.logprobs"],
            stream=True,
        )
    )

    assert events[-1].response.output[0].content[0].logprobs
