"""Background streams while Valkey and PostgreSQL go away and come back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.acceptance.client import script
from tests.acceptance.stack import Stack

pytestmark = pytest.mark.acceptance

MODEL = "scripted"
TEXT = " ".join(f"word-{number}" for number in range(40))
SLOW = script(text=TEXT, token_delay_s=0.05)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Return a stack of this module's own, since its servers are killed."""
    with (
        tempfile.TemporaryDirectory(prefix="tandem-background-") as folder,
        Stack(Path(folder)) as running,
    ):
        running.add_model(MODEL)
        running.start_worker(MODEL)
        yield running


@pytest.fixture(scope="module")
def openai_sdk(stack: Stack) -> Iterator[openai.OpenAI]:
    gateway = stack.start_gateway()
    gateway.wait_for_model(MODEL)
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=stack.key) as client:
        yield client


def begin(client: openai.OpenAI) -> Iterable[Any]:
    return client.responses.create(model=MODEL, input=SLOW, background=True, stream=True)


def check_whole(client: openai.OpenAI, seen: list[Any]) -> None:
    """Check that a stream has no gap and no repeat, and that it is the same again."""
    assert seen[-1].type == "response.completed"
    assert text_of(seen) == TEXT
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    again = list(client.responses.retrieve(seen[0].response.id, stream=True))
    assert [event.to_dict() for event in again] == [event.to_dict() for event in seen]


def text_of(events: Iterable[Any]) -> str:
    return "".join(each.delta for each in events if each.type == "response.output_text.delta")


@pytest.mark.parametrize("keep_data", [True, False])
def test_a_valkey_that_is_killed_leaves_no_gap_and_no_repeat(
    stack: Stack, openai_sdk: openai.OpenAI, keep_data: bool
) -> None:
    seen: list[Any] = []
    for event in begin(openai_sdk):
        seen.append(event)
        if len(seen) == 10:
            stack.restart_valkey(keep_data=keep_data)
    check_whole(openai_sdk, seen)


def test_a_database_that_is_started_anew_costs_nothing(
    stack: Stack, openai_sdk: openai.OpenAI
) -> None:
    seen: list[Any] = []
    for event in begin(openai_sdk):
        seen.append(event)
        if len(seen) == 10:
            stack.restart_postgres()
    check_whole(openai_sdk, seen)
