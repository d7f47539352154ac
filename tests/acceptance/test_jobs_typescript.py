"""OpenAI's TypeScript SDK and what lasts: files, batches, responses, streams that are resumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.acceptance.client import ENDLESS, script
from tests.acceptance.programs import Program
from tests.acceptance.stack import Gateway, Stack, ending
from tests.acceptance.test_openai_batches import CHAT, chat_row

pytestmark = pytest.mark.acceptance

NOBODYS = "0198c5a0-0000-7000-8000-000000000001"
TEXT = "one two three four five six seven eight"


@pytest.fixture(scope="module", autouse=True)
def _clerk(stack: Stack) -> Iterator[None]:
    """Have somebody validate batches and write their results."""
    with ending(stack.start_clerk()):
        yield


@pytest.fixture
def node(typescript: Program) -> Program:
    """Return the SDK, of the shared gateway."""
    return replace(typescript, command=("node", "openai.mjs"))


def test_a_file_is_stored_listed_read_and_deleted(node: Program) -> None:
    node_said = node.run("storeFile", "notes \u2713.txt", "one\ntwo\n")
    stored = node_said["stored"]
    assert stored == node_said["retrieved"]
    assert (stored["filename"], stored["bytes"]) == ("notes \u2713.txt", 8)
    assert stored["expires_at"] == stored["created_at"] + 3600
    assert stored["id"] in node_said["listed"]
    assert node_said["read"] == "one\ntwo\n"
    assert node_said["deleted"] == {"id": stored["id"], "object": "file", "deleted": True}


def test_a_batch_is_run_from_a_file_to_files(node: Program, model: str) -> None:
    rows = [
        *(chat_row(f"row-{n}", model, script(text=f"answer {n}")) for n in range(5)),
        chat_row("bad", model, temperature="hot"),
    ]
    ran = node.run("runBatch", rows, CHAT)
    assert ran["made"]["status"] == "validating"
    ended = ran["ended"]
    assert (ended["status"], ended["metadata"]) == ("completed", {"for": "a test"})
    assert ended["request_counts"] == {"total": 6, "completed": 5, "failed": 1}
    assert ended["id"] in ran["listed"]
    answers = {
        line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"]
        for line in ran["answers"]
    }
    assert answers == {f"row-{n}": f"answer {n}" for n in range(5)}
    (error,) = ran["errors"]
    assert (error["custom_id"], error["response"]["status_code"]) == ("bad", 400)


def test_a_batch_of_a_bad_file_says_which_line(node: Program, model: str) -> None:
    ended = node.run("runBatch", [chat_row("a", model), chat_row("a", model)], CHAT)["ended"]
    assert ended["status"] == "failed"
    (error,) = ended["errors"]["data"]
    assert (error["line"], error["code"]) == (2, "duplicate_custom_id")


def test_a_batch_is_cancelled(node: Program, gateway: Gateway, stack: Stack) -> None:
    # No engine runs it.
    name = stack.add_model("vendor/Left")
    gateway.wait_for_model(name, state="missing", engines=0)
    assert node.run("cancelBatch", chat_row("a", name))["status"] == "cancelled"


def test_a_response_is_made_and_read_again(node: Program, model: str) -> None:
    made = node.run("respond", {"model": model, "input": script(text="Paris.")})
    assert made["output_text"] == "Paris."
    again = node.run("retrieveResponse", made["id"])
    assert again["output"] == made["output"]


def test_a_stream_adds_up_to_the_whole_response(node: Program, model: str) -> None:
    asked = {"model": model, "input": script(text=TEXT)}
    streamed, whole = node.run("streamResponse", asked), node.run("respond", asked)
    assert streamed["heard"] == streamed["response"]["output_text"] == whole["output_text"] == TEXT
    assert streamed["response"]["usage"] == whole["usage"]


def test_a_stream_that_was_left_goes_on_without_gap_and_repeat(node: Program, model: str) -> None:
    slow = script(text=TEXT, token_delay_s=0.05)
    resumed = node.run("resumeResponse", {"model": model, "input": slow})
    events = resumed["events"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert "".join(deltas) == resumed["response"]["output_text"] == TEXT
    assert events[-1]["response"]["output"] == resumed["response"]["output"]


def test_a_response_in_the_background_is_cancelled_and_deleted(node: Program, model: str) -> None:
    cancelled = node.run("cancelResponse", {"model": model, "input": ENDLESS})
    assert cancelled["status"] == "cancelled"
    error = node.fail("retrieveResponse", cancelled["id"])
    assert (error["name"], error["status"]) == ("NotFoundError", 404)


@pytest.mark.parametrize(
    ("scenario", "unknown"),
    [("retrieveFile", f"file-{NOBODYS}"), ("retrieveResponse", f"resp_{NOBODYS}")],
)
def test_what_is_unknown_is_not_found(node: Program, scenario: str, unknown: str) -> None:
    error = node.fail(scenario, unknown)
    assert (error["name"], error["status"]) == ("NotFoundError", 404)
    assert unknown in error["message"]
    assert error["requestID"].startswith("req_")
