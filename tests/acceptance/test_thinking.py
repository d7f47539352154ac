"""Thinking through the official SDK: where it stands, when there is none, and given back."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from anthropic.types import Message

from tests.acceptance.client import Client, body, script

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

THOUGHT = "They ask for the capital."
ON = {"type": "enabled", "budget_tokens": 1024}
OFF = {"type": "disabled"}


def asked(model: str, **fields: Any) -> dict[str, Any]:
    return body(model, script(thinking=THOUGHT, text="Paris."), **fields)


def kinds_of(message: Message) -> list[str]:
    return [block.type for block in message.content]


def test_thinking_comes_before_the_text(sdk: anthropic.Anthropic, gifted: str) -> None:
    message = sdk.messages.create(**asked(gifted))
    thinking, text = message.content
    assert thinking.type == "thinking"
    assert thinking.thinking == THOUGHT
    assert thinking.signature == ""
    assert text.type == "text"
    assert text.text == "Paris."
    assert message.stop_reason == "end_turn"


def test_streamed_thinking_ends_with_an_empty_signature(
    sdk: anthropic.Anthropic, gifted: str
) -> None:
    with sdk.messages.stream(**asked(gifted)) as stream:
        deltas = [event.delta for event in stream if event.type == "content_block_delta"]
        message = stream.get_final_message()
    kinds = [delta.type for delta in deltas]
    signature_at = kinds.index("signature_delta")
    assert set(kinds[:signature_at]) == {"thinking_delta"}
    assert set(kinds[signature_at + 1 :]) == {"text_delta"}
    thinking, text = message.content
    assert thinking.type == "thinking"
    assert (thinking.thinking, thinking.signature) == (THOUGHT, "")
    assert text.type == "text"
    assert text.text == "Paris."


def test_thinking_is_counted(sdk: anthropic.Anthropic, gifted: str) -> None:
    usage = sdk.messages.create(**asked(gifted)).usage
    assert usage.output_tokens_details is not None
    assert usage.output_tokens_details.thinking_tokens == len(THOUGHT.split())
    assert usage.output_tokens == len(THOUGHT.split()) + 1


def test_a_model_thinks_when_asked_to(sdk: anthropic.Anthropic, gifted: str) -> None:
    assert kinds_of(sdk.messages.create(**asked(gifted, thinking=ON))) == ["thinking", "text"]


def test_thinking_can_be_switched_off(sdk: anthropic.Anthropic, gifted: str) -> None:
    assert kinds_of(sdk.messages.create(**asked(gifted, thinking=OFF))) == ["text"]
    with sdk.messages.stream(**asked(gifted, thinking=OFF)) as stream:
        assert kinds_of(stream.get_final_message()) == ["text"]


def test_a_model_that_cannot_think_does_not(sdk: anthropic.Anthropic, model: str) -> None:
    assert kinds_of(sdk.messages.create(**asked(model, thinking=ON))) == ["text"]


def test_thinking_may_be_given_back(sdk: anthropic.Anthropic, gifted: str) -> None:
    first = asked(gifted)
    history = [
        *first["messages"],
        {"role": "assistant", "content": sdk.messages.create(**first).content},
        {"role": "user", "content": script(text="As I said.")},
    ]
    (text,) = sdk.messages.create(**first | {"messages": history}).content
    assert text.type == "text"
    assert text.text == "As I said."


def test_foreign_thinking_may_be_given_back(client: Client, gifted: str) -> None:
    thoughts = [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": "Yes."},
    ]
    messages = [
        {"role": "user", "content": "Really?"},
        {"role": "assistant", "content": thoughts},
        {"role": "user", "content": script(text="Sure.")},
    ]
    response = client.ask(gifted, "", messages=messages)
    assert response.status_code == 200
    assert response.json()["content"] == [{"type": "text", "text": "Sure."}]


def test_thinking_in_a_user_turn_is_refused(client: Client, gifted: str) -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    response = client.ask(gifted, "", messages=[{"role": "user", "content": [thought]}])
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert message.startswith("messages.0.content.0: `thinking` blocks can only be in `assistant`")
