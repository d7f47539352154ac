"""Responses that last, by OpenAI's own SDK: kept, made in the background, resumed, cancelled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response

from tests.acceptance.client import ENDLESS, script
from tests.acceptance.stack import Gateway, Stack, ending, eventually
from tests.acceptance.teams import make_member

pytestmark = pytest.mark.acceptance

OVER = ("completed", "failed", "cancelled", "incomplete")
TEXT = "one two three four five six seven eight"
SLOW = script(text=TEXT, token_delay_s=0.05)


@pytest.fixture
def openai_sdk(stack: Stack, gateway: Gateway) -> Iterator[openai.OpenAI]:
    """Return OpenAI's own client, of the shared gateway."""
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=stack.key) as client:
        yield client


def ended(client: openai.OpenAI, response_id: str) -> Response:
    """Wait until a response has ended."""

    def look() -> Response | None:
        response = client.responses.retrieve(response_id)
        return response if response.status in OVER else None

    found = eventually(look, f"{response_id} ends")
    assert found is not None
    return found


def numbers(events: Iterable[Any]) -> list[int]:
    return [event.sequence_number for event in events]


def text_of(events: Iterable[Any]) -> str:
    return "".join(each.delta for each in events if each.type == "response.output_text.delta")


@pytest.mark.every_route
def test_an_answer_can_be_read_again(openai_sdk: openai.OpenAI, model: str) -> None:
    made = openai_sdk.responses.create(model=model, input="hello", metadata={"topic": "greeting"})
    again = openai_sdk.responses.retrieve(made.id)
    assert again.to_dict() == made.to_dict()
    assert again.status == "completed"


@pytest.mark.every_route
def test_a_streamed_answer_can_be_read_again(openai_sdk: openai.OpenAI, model: str) -> None:
    events = list(openai_sdk.responses.create(model=model, input="hello", stream=True))
    last = events[-1]
    assert last.type == "response.completed"
    again = openai_sdk.responses.retrieve(last.response.id)
    assert again.output_text == last.response.output_text == text_of(events)


def test_with_store_false_nothing_is_kept(openai_sdk: openai.OpenAI, model: str) -> None:
    made = openai_sdk.responses.create(model=model, input="hello", store=False)
    with pytest.raises(openai.NotFoundError):
        openai_sdk.responses.retrieve(made.id)


@pytest.mark.every_route
def test_a_conversation_goes_on(openai_sdk: openai.OpenAI, model: str) -> None:
    first = openai_sdk.responses.create(model=model, input="first")
    second = openai_sdk.responses.create(model=model, input="second", previous_response_id=first.id)
    items = openai_sdk.responses.input_items.list(second.id, order="asc", limit=2)
    told = [item.to_dict()["content"][0]["text"] for item in items]  # type: ignore[index]
    assert told == ["first", first.output_text, "second"]


@pytest.mark.parametrize(
    "response_id", ["resp_0198c5a0-0000-7000-8000-000000000001", "resp_nonsense"]
)
def test_an_unknown_response_is_not_continued(
    openai_sdk: openai.OpenAI, model: str, response_id: str
) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        openai_sdk.responses.create(model=model, input="x", previous_response_id=response_id)
    assert raised.value.param == "previous_response_id"


def test_another_teams_response_is_as_one_that_nobody_has(
    stack: Stack, gateway: Gateway, openai_sdk: openai.OpenAI, model: str
) -> None:
    mine = openai_sdk.responses.create(model=model, input="hello")
    theirs = make_member(stack).key
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=theirs) as stranger:
        for call in (
            stranger.responses.retrieve,
            stranger.responses.delete,
            stranger.responses.cancel,
            stranger.responses.input_items.list,
        ):
            with pytest.raises(openai.NotFoundError) as raised:
                call(mine.id)
            assert raised.value.body["message"] == f"Response with id '{mine.id}' not found."  # type: ignore[index]
    assert openai_sdk.responses.retrieve(mine.id).id == mine.id


@pytest.mark.every_route
def test_a_background_response_is_made_after_its_request_is_answered(
    openai_sdk: openai.OpenAI, model: str
) -> None:
    made = openai_sdk.responses.create(model=model, input=SLOW, background=True)
    assert (made.status, made.output, made.background) == ("queued", [], True)
    response = ended(openai_sdk, made.id)
    assert (response.status, response.output_text) == ("completed", TEXT)
    assert response.usage is not None
    assert response.completed_at is not None


def test_a_background_response_that_is_not_stored_is_refused(
    openai_sdk: openai.OpenAI, model: str
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        openai_sdk.responses.create(model=model, input="x", background=True, store=False)
    assert raised.value.param == "store"


@pytest.mark.every_route
def test_bug_42_and_44_a_stream_that_was_left_is_resumed_without_gap_and_repeat(
    openai_sdk: openai.OpenAI, model: str
) -> None:
    seen: list[Any] = []
    with openai_sdk.responses.create(
        model=model, input=SLOW, background=True, stream=True
    ) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
    response_id = seen[0].response.id
    resumed = openai_sdk.responses.retrieve(
        response_id, stream=True, starting_after=seen[-1].sequence_number
    )
    seen += resumed
    assert numbers(seen) == list(range(len(seen)))
    assert seen[-1].type == "response.completed"
    assert text_of(seen) == TEXT
    again = list(openai_sdk.responses.retrieve(response_id, stream=True))
    assert [event.to_dict() for event in again] == [event.to_dict() for event in seen]


@pytest.mark.every_route
def test_bug_43_a_response_that_was_left_at_once_still_ends(
    openai_sdk: openai.OpenAI, model: str
) -> None:
    with openai_sdk.responses.create(
        model=model, input=SLOW, background=True, stream=True
    ) as stream:
        created = next(iter(stream))
    assert created.type == "response.created"
    assert ended(openai_sdk, created.response.id).output_text == TEXT


def test_one_that_was_begun_without_stream_has_none(openai_sdk: openai.OpenAI, model: str) -> None:
    made = openai_sdk.responses.create(model=model, input="x", background=True)
    with pytest.raises(openai.BadRequestError, match="cannot be streamed"):
        openai_sdk.responses.retrieve(made.id, stream=True)


@pytest.mark.every_route
def test_cancelling_ends_a_response_and_its_stream(
    stack: Stack, openai_sdk: openai.OpenAI, model: str
) -> None:
    seen: list[Any] = []
    with openai_sdk.responses.create(
        model=model, input=ENDLESS, background=True, stream=True
    ) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta" and len(seen) < 10:
                for _ in range(2):
                    cancelled = openai_sdk.responses.cancel(seen[0].response.id)
                    assert cancelled.status == "cancelled"
    assert seen[-1].response.status == "cancelled"
    assert numbers(seen) == list(range(len(seen)))
    stack.wait_for_in_flight(model, 0)
    again = openai_sdk.responses.retrieve(cancelled.id, stream=True)
    assert numbers(again) == numbers(seen)


def test_one_that_waits_is_cancelled_without_an_engine(
    stack: Stack, gateway: Gateway, openai_sdk: openai.OpenAI
) -> None:
    model = stack.add_model("background-without-engine")

    def known() -> bool:
        return model in gateway.readiness()["models"]

    eventually(known, f"the gateway knows {model}")
    made = openai_sdk.responses.create(model=model, input="x", background=True, stream=True)
    created = next(iter(made))
    assert created.type == "response.created"
    openai_sdk.responses.cancel(created.response.id)
    assert [event.type for event in made][-1] == "response.incomplete"


def test_an_answer_that_was_waited_for_cannot_be_cancelled(
    openai_sdk: openai.OpenAI, model: str
) -> None:
    made = openai_sdk.responses.create(model=model, input="x")
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        openai_sdk.responses.cancel(made.id)


def test_deleting_cancels_what_runs_and_deletes_what_has_ended(
    openai_sdk: openai.OpenAI, model: str
) -> None:
    made = openai_sdk.responses.create(model=model, input=ENDLESS, background=True)
    openai_sdk.responses.delete(made.id)
    assert openai_sdk.responses.retrieve(made.id).status == "cancelled"
    openai_sdk.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        openai_sdk.responses.retrieve(made.id)


def test_an_engine_that_dies_leaves_no_gap_and_no_repeat(
    stack: Stack, gateway: Gateway, openai_sdk: openai.OpenAI
) -> None:
    model = stack.add_model("background-engine-dies", engine_options={"token_delay_s": 0.05})
    doomed = stack.start_worker(model)
    gateway.wait_for_model(model)
    stream = openai_sdk.responses.create(
        model=model, input=script(text=TEXT), background=True, stream=True
    )
    seen: list[Any] = []
    for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta" and doomed.alive:
            doomed.kill()
            successor = stack.start_worker(model)
    with ending(successor):
        assert seen[-1].type == "response.completed"
        assert text_of(seen) == TEXT
        assert numbers(seen) == list(range(len(seen)))


def test_a_gateway_that_dies_costs_the_stream_and_not_the_response(
    stack: Stack, openai_sdk: openai.OpenAI, model: str
) -> None:
    doomed = stack.start_gateway()
    doomed.wait_for_model(model)
    seen: list[Any] = []
    with openai.OpenAI(base_url=f"{doomed.url}/v1", api_key=stack.key, max_retries=0) as client:
        stream = client.responses.create(model=model, input=SLOW, background=True, stream=True)
        # However the client says that its connection broke.
        with suppress(httpx.TransportError, openai.APIError):
            for event in stream:
                seen.append(event)
                if event.type == "response.output_text.delta":
                    doomed.server.kill()
    assert seen[-1].type == "response.output_text.delta"
    after = seen[-1].sequence_number
    seen += openai_sdk.responses.retrieve(seen[0].response.id, stream=True, starting_after=after)
    assert text_of(seen) == TEXT
    assert numbers(seen) == list(range(len(seen)))
