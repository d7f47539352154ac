"""`/v1/models`, read back by both official SDKs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import anthropic
import httpx2
import msgspec
import openai
import pytest

from gateway.dialects.anthropic.models import Page, decode_page, render_list, render_model
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError

CREATED = datetime(2026, 11, 29, 16, 24, 5, 678, tzinfo=UTC)


def entry(model_id: str) -> ModelEntry:
    return ModelEntry(
        id=model_id,
        display_name=model_id.title(),
        aliases=(),
        backend="scripted",
        weights="",
        context_tokens=8192,
        capacity=32,
        max_waiting=256,
        workers=1,
        engine_options={},
        canary_prompt="",
        canary_expect="",
        created_at=CREATED,
    )


ENTRIES = [entry(name) for name in ("a", "b", "org/C", "d", "e")]


def page(**fields: Any) -> tuple[list[str], bool]:
    shown = json.loads(render_list(ENTRIES, Page(**fields)))
    return [row["id"] for row in shown["data"]], shown["has_more"]


@contextmanager
def server() -> Iterator[httpx2.Client]:
    """Serve `ENTRIES` to an SDK, in pages to whom sends `anthropic-version`."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        model_id = request.url.path.partition("/v1/models")[2].removeprefix("/")
        if model_id:
            found = next(entry for entry in ENTRIES if entry.id == model_id)
            return httpx2.Response(200, content=render_model(found))
        paged = "anthropic-version" in request.headers
        wanted = decode_page(request.url.params.multi_items()) if paged else None
        return httpx2.Response(200, content=render_list(ENTRIES, wanted))

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as client:
        yield client


def test_a_row_serves_both_kinds_of_clients() -> None:
    row = json.loads(render_model(ENTRIES[2]))
    capabilities = row.pop("capabilities")
    assert row == {
        "id": "org/C",
        "object": "model",
        "created": 1795969445,
        "owned_by": "tandem",
        "type": "model",
        "display_name": "Org/C",
        "created_at": "2026-11-29T16:24:05Z",
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
        "line": None,
        "max_input_tokens": 8192,
        "max_tokens": 8192,
        "provider": "tandem",
        "modality": "text_generation",
        "context_tokens": 8192,
    }
    assert set(capabilities) == {*anthropic.types.ModelCapabilities.model_fields, "tools"}


def capabilities_of(**fields: Any) -> dict[str, Any]:
    changed = msgspec.structs.replace(ENTRIES[0], **fields)
    capabilities = json.loads(render_model(changed))["capabilities"]
    assert isinstance(capabilities, dict)
    return capabilities


@pytest.mark.parametrize("able", [True, False])
def test_capabilities_say_what_the_catalogue_says(able: bool) -> None:
    capabilities = capabilities_of(vision=able)
    assert capabilities["image_input"]["supported"] is able
    assert capabilities["structured_outputs"]["supported"] is True


@pytest.mark.parametrize(
    ("backend", "tool_parser", "calls"),
    [
        ("vllm", "", False),
        ("vllm", "hermes", True),
        ("openai", "", True),
        ("anthropic", "", True),
        ("scripted", "", True),
    ],
)
def test_only_a_model_of_vllm_needs_a_parser_to_call_tools(
    backend: str, tool_parser: str, calls: bool
) -> None:
    capabilities = capabilities_of(backend=backend, tool_parser=tool_parser)
    assert capabilities["tools"] == {"supported": calls}


@pytest.mark.parametrize(
    ("reasoning", "on", "off"),
    [
        ("none", False, True),
        ("optional", True, True),
        ("default_on", True, True),
        ("always", True, False),
    ],
)
def test_thinking_can_be_switched_as_the_model_allows(reasoning: str, on: bool, off: bool) -> None:
    thinking = capabilities_of(reasoning=reasoning)["thinking"]
    types = {name: row["supported"] for name, row in thinking["types"].items()}
    assert thinking["supported"] is on
    assert types == {"enabled": on, "adaptive": on, "disabled": off, "between_tools": False}


def test_bug_59_every_alias_has_a_row_that_says_which_model_it_is() -> None:
    named = msgspec.structs.replace(ENTRIES[0], aliases=("claude-a", "anthropic/a"))
    shown = json.loads(render_list([named, ENTRIES[1]], None))
    assert [(row["id"], row["display_name"]) for row in shown["data"]] == [
        ("a", "A"),
        ("claude-a", "claude-a (A)"),
        ("anthropic/a", "anthropic/a (A)"),
        ("b", "B"),
    ]
    assert (shown["first_id"], shown["last_id"]) == ("a", "b")


def test_an_alias_that_finds_another_model_is_not_listed_for_this_one() -> None:
    first = msgspec.structs.replace(ENTRIES[0], aliases=("B", "x"))
    second = msgspec.structs.replace(ENTRIES[1], aliases=("X", "y"))
    rows = json.loads(render_list([first, second], None))["data"]
    assert [row["id"] for row in rows] == ["a", "x", "b", "y"]


def test_pages_are_cut_between_aliases_too() -> None:
    named = msgspec.structs.replace(ENTRIES[0], aliases=("claude-a",))
    shown = json.loads(render_list([named, ENTRIES[1]], Page(after_id="CLAUDE-A")))
    assert [row["id"] for row in shown["data"]] == ["b"]


def test_times_are_told_in_utc_whatever_zone_they_carry() -> None:
    moved = msgspec.structs.replace(
        ENTRIES[0], created_at=CREATED.astimezone(timezone(timedelta(hours=9)))
    )
    assert render_model(moved) == render_model(ENTRIES[0])


def test_without_a_page_the_list_is_whole() -> None:
    many = [entry(f"m{number}") for number in range(50)]
    shown = json.loads(render_list(many, None))
    assert (shown["object"], shown["has_more"]) == ("list", False)
    assert (shown["first_id"], shown["last_id"], len(shown["data"])) == ("m0", "m49", 50)


def test_an_empty_list_has_no_first_and_no_last() -> None:
    assert json.loads(render_list([], Page())) == {
        "object": "list",
        "data": [],
        "has_more": False,
        "first_id": None,
        "last_id": None,
    }


@pytest.mark.parametrize(
    ("fields", "ids", "has_more"),
    [
        ({"limit": 2}, ["a", "b"], True),
        ({"limit": 5}, ["a", "b", "org/C", "d", "e"], False),
        ({"limit": 2, "after_id": "b"}, ["org/C", "d"], True),
        ({"limit": 2, "after_id": "ORG/c"}, ["d", "e"], False),
        ({"limit": 2, "after_id": "e"}, [], False),
        ({"limit": 2, "before_id": "d"}, ["b", "org/C"], True),
        ({"limit": 3, "before_id": "d"}, ["a", "b", "org/C"], False),
        ({"limit": 2, "before_id": "a"}, [], False),
    ],
)
def test_a_page_is_cut_next_to_its_cursor(
    fields: dict[str, Any], ids: list[str], has_more: bool
) -> None:
    assert page(**fields) == (ids, has_more)


def test_a_page_beside_an_unknown_model_is_refused() -> None:
    with pytest.raises(TandemError, match=r"^after_id: model 'x' not found$") as caught:
        page(after_id="x")
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("text", "limit"), [(None, 20), ("1", 1), ("1000", 1000)])
def test_it_reads_the_limit(text: str | None, limit: int) -> None:
    query = [] if text is None else [("limit", "5"), ("limit", text)]
    assert decode_page(query).limit == limit


@pytest.mark.parametrize("text", ["0", "1001", "-1", "", "ten", "1.5", "9" * 5000, "²", "1\n"])
def test_it_refuses_a_limit_that_is_out_of_range(text: str) -> None:
    with pytest.raises(TandemError, match=r"^limit: Input should be an integer from 1 to 1000$"):
        decode_page([("limit", text)])


def test_it_refuses_two_cursors() -> None:
    with pytest.raises(TandemError, match=r"^before_id: cannot be combined with after_id$"):
        decode_page([("after_id", "a"), ("before_id", "b")])


@pytest.mark.parametrize("name", ["lifecycle", "lifecycle[]"])
def test_it_reads_every_stage_that_is_wanted(name: str) -> None:
    query = [(name, "retired"), ("limit", "2"), (name, "active")]
    assert decode_page(query) == Page(limit=2, lifecycle=frozenset({"retired", "active"}))


def test_it_refuses_an_unknown_stage() -> None:
    with pytest.raises(TandemError, match=r"^lifecycle: Input should be 'active', 'deprecated'"):
        decode_page([("lifecycle[]", "active"), ("lifecycle[]", "new")])


@pytest.mark.parametrize(
    ("stages", "listed"),
    [([], True), (["active"], True), (["retired", "active"], True), (["deprecated"], False)],
)
def test_every_model_is_active(stages: list[str], listed: bool) -> None:
    ids, has_more = page(lifecycle=frozenset(stages), limit=2)
    assert (ids, has_more) == ((["a", "b"], True) if listed else ([], False))


def test_bug_58_the_anthropic_sdk_pages_through_and_retrieves() -> None:
    with (
        server() as http,
        anthropic.Anthropic(api_key="k", base_url="http://tandem", http_client=http) as client,
    ):
        assert list(client.models.list(lifecycle=["deprecated", "retired"])) == []
        listed = list(client.models.list(limit=2, lifecycle=["active", "retired"]))
        assert [model.id for model in listed] == [entry.id for entry in ENTRIES]
        model = client.models.retrieve("org/C")
    assert (model.lifecycle, model.max_input_tokens) == ("active", 8192)
    assert model.created_at == CREATED - timedelta(microseconds=678)
    assert model.capabilities is not None
    assert model.capabilities.thinking.supported is False
    assert model.capabilities.thinking.types.disabled.supported is True


def test_the_openai_sdk_lists_and_retrieves() -> None:
    with (
        server() as http,
        openai.OpenAI(api_key="k", base_url="http://tandem/v1", http_client=http) as client,
    ):
        listed = list(client.models.list())
        assert [model.id for model in listed] == [entry.id for entry in ENTRIES]
        model = client.models.retrieve("org/C")
    assert (model.object, model.owned_by, model.created) == ("model", "tandem", 1795969445)
