"""sference's own SDK and CLI: responses, streams, the feed, models, and whose key it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sference_sdk import ApiError, SferenceClient
from sference_sdk.models import StreamInferenceCompletionEvent

from tests.acceptance.client import ENDLESS
from tests.acceptance.stack import Gateway, Stack, eventually
from tests.acceptance.teams import make_member

pytestmark = pytest.mark.acceptance

Cli = Callable[..., str]
CliCommand = Callable[..., tuple[list[str], dict[str, str]]]


@pytest.fixture
def team(stack: Stack) -> str:
    """Return the key of a team of this test's own: a feed is a team's."""
    return make_member(stack, key={"name": "laptop"}).key


@pytest.fixture
def sference(
    gateway: Gateway, team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SferenceClient]:
    """Return sference's client, of the shared gateway."""
    monkeypatch.setenv("SFERENCE_STREAM_CHECKPOINTS", str(tmp_path / "checkpoints.json"))
    with SferenceClient(base_url=gateway.url, api_key=team) as client:
        yield client


@pytest.fixture
def cli_command(gateway: Gateway, team: str, tmp_path: Path) -> CliCommand:
    """Return a function that makes a command of sference's CLI, and its environment."""

    def make(*arguments: str) -> tuple[list[str], dict[str, str]]:
        program = [sys.executable, "-uc", "from sference_cli.main import main; main()"]
        environment = {"HOME": str(tmp_path), "SFERENCE_API_KEY": team, "PATH": os.defpath}
        return [*program, *arguments, "--base-url", gateway.url], environment

    return make


@pytest.fixture
def cli(cli_command: CliCommand) -> Cli:
    """Return a function that runs sference's CLI and returns what it prints."""

    def run(*arguments: str) -> str:
        command, environment = cli_command(*arguments)
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def feed_of(
    client: SferenceClient, count: int, stream_id: str | None = None
) -> list[StreamInferenceCompletionEvent]:
    """Wait until the feed has so many events, and return them."""

    def look() -> list[StreamInferenceCompletionEvent]:
        page = client.list_responses_events(stream_id=stream_id, wait_ms=1000)
        return page.data if len(page.data) == count else []

    return eventually(look, f"the feed has {count} events")


def test_it_knows_whose_key_it_is(sference: SferenceClient) -> None:
    me = sference.get_me()
    assert (me["username"], me["role"]) == ("laptop", "member")


def test_it_lists_models(sference: SferenceClient, model: str) -> None:
    assert model in [row["id"] for row in sference.list_models()["data"]]


def test_it_asks_and_reads_again(sference: SferenceClient, model: str) -> None:
    made = sference.create_response(model=model, input="hello", include_reasoning=True)
    assert made.status == "completed"
    assert sference.get_response(made.id) == made
    bare = made.id.removeprefix("resp_")
    assert sference.get_response(bare) == made
    listed = sference.list_responses(limit=5)
    assert [row.id for row in listed.data] == [made.id]


def test_what_runs_in_the_background_is_in_progress_to_it(
    sference: SferenceClient, model: str
) -> None:
    made = sference.create_response(
        model=model,
        input=[{"role": "user", "content": "hello"}],
        background=True,
        metadata={"completion_window": "24h", "custom_id": "row-1"},
    )
    assert made.status == "in_progress"
    done = sference.wait_for_response(made.id, poll_interval=0.05)
    assert done.status == "completed"
    (event,) = feed_of(sference, 1)
    assert (event.response_id, event.custom_id) == (made.id, "row-1")
    assert event.result is not None
    assert event.total_tokens


def test_it_cancels_what_runs(sference: SferenceClient, model: str) -> None:
    made = sference.create_response(model=model, input=ENDLESS, background=True)
    assert sference.cancel_response(made.id).status == "cancelled"
    assert [event.status for event in feed_of(sference, 1)] == ["cancelled"]


def test_a_feed_is_read_on_from_where_it_was_left(sference: SferenceClient, model: str) -> None:
    first = sference.create_response(model=model, input="one", background=True)
    feed_of(sference, 1)
    assert [each.response_id for each in sference.iter_responses_events()] == [first.id]
    later = [
        sference.create_response(model=model, input="more", background=True).id for _ in range(3)
    ]
    feed_of(sference, 4)
    assert {each.response_id for each in sference.iter_responses_events()} == set(later)
    assert list(sference.iter_responses_events()) == []


def test_a_wait_for_the_feed_ends_with_the_news(sference: SferenceClient, model: str) -> None:
    sference.create_response(model=model, input="one", background=True)
    (event,) = feed_of(sference, 1)
    sference.create_response(model=model, input="two", background=True)
    page = sference.list_responses_events(starting_after=event.completion_id, wait_ms=20_000)
    assert [each.status for each in page.data] == ["completed"]


def test_a_stream_groups_responses(sference: SferenceClient, model: str) -> None:
    stream = sference.create_stream("nightly")
    assert stream.status == "open"
    for number in range(3):
        made = sference.create_response(
            model=model,
            input="hello",
            metadata={"stream_id": stream.id, "custom_id": f"row-{number}"},
        )
        assert made.status in ("in_progress", "completed")
    events = feed_of(sference, 3, stream.id)
    assert {event.custom_id for event in events} == {"row-0", "row-1", "row-2"}
    found = sference.get_stream(stream.id)
    assert (found.total_items, found.completed_items, found.completion_ratio) == (3, 3, 1.0)
    assert found.total_tokens > 0
    assert len(sference.list_responses(stream_id=stream.id).data) == 3
    assert sference.list_responses_events().data == []
    assert [each.id for each in sference.list_streams().items] == [stream.id]


def test_an_archived_stream_takes_no_more(sference: SferenceClient, model: str) -> None:
    stream = sference.create_stream("nightly")
    assert sference.archive_stream(stream.id).status == "archived"
    with pytest.raises(ApiError, match="409"):
        sference.create_response(model=model, input="x", metadata={"stream_id": stream.id})


def test_cancelling_a_stream_cancels_what_waits(
    stack: Stack, gateway: Gateway, sference: SferenceClient
) -> None:
    model = stack.add_model("stream-without-engine")
    eventually(lambda: model in gateway.readiness()["models"], f"the gateway knows {model}")
    stream = sference.create_stream("nightly")
    made = sference.create_response(model=model, input="x", metadata={"stream_id": stream.id})
    cancelled = sference.cancel_stream(stream.id)
    assert (cancelled.status, cancelled.cancelled_items) == ("cancelled", 1)
    assert sference.get_response(made.id).status == "cancelled"


def test_another_teams_stream_is_not_found(
    stack: Stack, gateway: Gateway, sference: SferenceClient, model: str
) -> None:
    stream = sference.create_stream("nightly")
    with SferenceClient(base_url=gateway.url, api_key=stack.key) as stranger:
        with pytest.raises(ApiError, match="404"):
            stranger.get_stream(stream.id)
        with pytest.raises(ApiError, match="404"):
            stranger.create_response(model=model, input="x", metadata={"stream_id": stream.id})


def test_the_cli_submits_and_shows(cli: Cli, model: str, tmp_path: Path) -> None:
    assert "laptop" in cli("auth", "me")
    assert model in cli("models", "list")
    made = json.loads(
        cli("responses", "create", "--model", model, "--content", "hi", "--background")
    )
    done = json.loads(cli("responses", "result", "--id", made["id"]))
    assert done["status"] == "completed"
    stream = json.loads(cli("stream", "create", "--name", "nightly", "--json"))
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"content": "one"}\n{"input": [{"role": "user", "content": "two"}]}\n')
    submit = ("stream", "submit", "--stream-id", stream["id"], "--input-file", str(rows))
    assert '"total_items": 2' in cli(*submit, "--model", model, "--json")
    assert stream["id"] in cli("stream", "list", "--json")
    shown = json.loads(cli("stream", "status", "--stream-id", stream["id"], "--json"))
    assert shown["total_items"] == 2
    for word in ("archive", "cancel"):
        closed = json.loads(cli("stream", word, "--stream-id", stream["id"], "--json"))
        assert closed["status"].startswith(word)


def test_the_cli_tails_the_feed(
    gateway: Gateway, sference: SferenceClient, cli_command: CliCommand, model: str
) -> None:
    made = [sference.create_response(model=model, input="a", background=True).id]
    feed_of(sference, 1)
    made.append(sference.create_response(model=model, input="b", background=True).id)
    feed_of(sference, 2)
    command, environment = cli_command("responses", "tail", "--poll-interval", "0.2")
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        try:
            told = [json.loads(tail.stdout.readline())["response_id"] for _ in range(2)]
            made.append(sference.create_response(model=model, input="c", background=True).id)
            told.append(json.loads(tail.stdout.readline())["response_id"])
        finally:
            tail.kill()
    assert told == made
