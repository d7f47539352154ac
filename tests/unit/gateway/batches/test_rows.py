"""Rows become work: the same checks as in realtime, and what the work says of its row."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

import msgspec
import pytest

from gateway.batches.endpoints import CHAT, INLINE, MESSAGES, RESPONSES, Rules
from gateway.batches.rows import Row
from gateway.image_source import ImageSource
from inference.errors import ErrorCode, TandemError
from inference.request import (
    GenerationRequest,
    ImagePart,
    Lane,
    Message,
    Owner,
    Role,
    TextPart,
)
from jobs.packing import unpack_request
from jobs.work.enqueue import NewWork
from jobs.work.prefix import prefix_of
from tests.unit.gateway.batches.material import (
    BLIND,
    MODEL,
    NOW,
    TERMS,
    USER,
    messages_body,
    picture,
    reader,
    row,
)

HELLO = (Message(role=Role.USER, parts=(TextPart("hello"),)),)
CHAT_BODY = {"model": MODEL, "max_tokens": 10, "messages": [USER]}
RESPONSES_BODY = {"model": MODEL, "max_output_tokens": 10, "input": "hello"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
BODIES = [
    (MESSAGES, messages_body(), "anthropic"),
    (CHAT, CHAT_BODY, "chat"),
    (RESPONSES, RESPONSES_BODY, "responses"),
    (INLINE, CHAT_BODY, "chat"),
    (INLINE, RESPONSES_BODY, "chat"),
]


def read(endpoint: str, body: object) -> GenerationRequest:
    return unpack_request(reader(endpoint).read(row(body)).request)


def refusal(endpoint: str, body: object) -> TandemError:
    with pytest.raises(TandemError) as refused:
        reader(endpoint).read(row(body))
    return refused.value


@pytest.mark.parametrize(("endpoint", "body", "dialect"), BODIES)
def test_a_row_becomes_work_that_says_all_of_it(endpoint: str, body: object, dialect: str) -> None:
    sent = row(body, line=4, custom_id="mine")
    work = reader(endpoint).read(sent)
    assert uuid.UUID(work.id).version == 7
    assert (work.batch_id, work.line, work.custom_id) == (TERMS.batch_id, 4, "mine")
    assert (work.team_id, work.key_id) == (3, TERMS.principal.key_id)
    assert (work.dialect, work.model, work.lane) == (dialect, MODEL, Lane.BATCH)
    assert (work.created_at, work.deadline_at) == (NOW, TERMS.deadline_at)
    assert (work.max_tokens, work.error_code) == (10, "")
    assert work.body_bytes == len(sent.body)
    assert work.body_digest == hashlib.sha256(sent.body).digest()
    # All of the context at the dearest input, and ten tokens of output: at half the price.
    assert work.hold_micros == (1000 * 1 + 10 * 2) // 2
    request = unpack_request(work.request)
    assert (request.id, request.model, request.lane) == (work.id, MODEL, Lane.BATCH)
    assert request.messages == HELLO
    assert request.deadline_s == TERMS.deadline_at.timestamp()
    assert request.owner == Owner(team_id=3, key_id=TERMS.principal.key_id)
    assert request.cache_salt == "salt"
    assert work.prefix == prefix_of(request)


def test_a_model_is_found_by_its_alias_in_any_case() -> None:
    assert reader(MESSAGES).read(row(messages_body(model="SEEING"))).model == MODEL


def test_an_endpoint_without_batches_is_refused() -> None:
    with pytest.raises(TandemError, match="/v1/chat/completions, /v1/responses, /v1/messages"):
        reader("/v1/embeddings")


@pytest.mark.parametrize(("endpoint", "body", "dialect"), BODIES)
def test_a_row_cannot_be_streamed(endpoint: str, body: dict[str, Any], dialect: str) -> None:
    error = refusal(endpoint, body | {"stream": True})
    assert error.code is ErrorCode.INVALID_REQUEST
    assert error.message.startswith("stream: ")
    assert read(endpoint, body | {"stream": False}).messages == HELLO


def test_a_row_cannot_ask_for_what_only_realtime_has() -> None:
    assert refusal(CHAT, CHAT_BODY | {"n": 2}).message.startswith("n: ")
    assert refusal(INLINE, CHAT_BODY | {"background": True}).message.startswith("background: ")
    for name, value in (("background", True), ("previous_response_id", "resp_1")):
        for endpoint in (RESPONSES, INLINE):
            message = refusal(endpoint, RESPONSES_BODY | {name: value}).message
            assert message.startswith(f"{name}: ")


def test_an_unknown_model_and_one_that_the_key_may_not_use_are_told_apart() -> None:
    error = refusal(MESSAGES, messages_body(model="nobody"))
    assert (error.code, error.message) == (ErrorCode.MODEL_NOT_FOUND, "model 'nobody' not found")
    only_blind = msgspec.structs.replace(TERMS.principal, allowed_models=frozenset({BLIND.lower()}))
    narrow = reader(MESSAGES, msgspec.structs.replace(TERMS, principal=only_blind))
    with pytest.raises(TandemError) as refused:
        narrow.read(row(messages_body()))
    assert refused.value.code is ErrorCode.PERMISSION


@pytest.mark.parametrize("body", [b"", b"[1]", b"null", b'{"model"', b'{"model": "\xff"}'])
def test_a_row_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(TandemError) as refused:
        reader(MESSAGES).read(Row(1, "a", body))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_unknown_fields_are_noted_or_refused_as_the_operator_has_set() -> None:
    body = messages_body(**{"nobody\0knows": 1})
    assert reader(MESSAGES).read(row(body)).ignored_fields == ("nobody\ufffdknows",)
    strict = reader(MESSAGES, msgspec.structs.replace(TERMS, rules=Rules(unknown="reject")))
    with pytest.raises(TandemError, match="Extra inputs are not permitted"):
        strict.read(row(body))


def test_a_rejected_row_has_failed_and_keeps_its_error() -> None:
    sent = row({}, line=9, custom_id="bad")
    error = TandemError(ErrorCode.INVALID_REQUEST, "a\0b", param="messages[0]", reason="missing")
    work = reader(CHAT).rejected(sent, error)
    assert (work.line, work.custom_id, work.model, work.request) == (9, "bad", "", b"")
    assert (work.error_code, work.error_message) == ("invalid_request", "a\ufffdb")
    assert work.echo == b'{"param":"messages[0]","reason":"missing"}'


def test_all_rows_are_read_in_order_and_wrong_ones_have_failed() -> None:
    bodies = [messages_body(), {}, messages_body(temperature=9), messages_body()]
    rows = [row(body, line) for line, body in enumerate(bodies, 1)]
    works = list(reader(MESSAGES).read_all(rows))
    assert [(work.line, work.error_code) for work in works] == [
        (1, ""),
        (2, "invalid_request"),
        (3, "invalid_request"),
        (4, ""),
    ]


def test_what_reject_raises_ends_the_reading() -> None:
    def refuse(row: Row, error: TandemError) -> NoReturn:
        raise TandemError(error.code, f"row {row.line}: {error.message}")

    rows = [row(messages_body()), row({"max_tokens": 1}, line=2)]
    with pytest.raises(TandemError, match="row 2: model: Field required"):
        list(reader(MESSAGES).read_all(rows, refuse))


class Loader:
    """Loads images when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[ImageSource], Future[list[ImagePart]]]] = []

    def __call__(self, sources: Sequence[ImageSource]) -> Future[list[ImagePart]]:
        future: Future[list[ImagePart]] = Future()
        self.asked.append((list(sources), future))
        return future

    def finish(self, index: int) -> None:
        sources, future = self.asked[index]
        future.set_result(picture(sources))


def seeing(line: int, **fields: Any) -> Row:
    content = [{"type": "text", "text": "look"}, IMAGE]
    return row(messages_body(messages=[{"role": "user", "content": content}], **fields), line)


def test_images_of_several_rows_are_loaded_at_once_and_of_no_more_than_a_few() -> None:
    loader = Loader()
    given: list[int] = []

    def rows() -> list[Row]:
        return [seeing(line) for line in range(1, 9)]

    def sent() -> Any:
        for each in rows():
            given.append(each.line)
            if each.line == 5:
                # Four wait and a fifth comes: the first has to be there now.
                loader.finish(0)
            yield each

    works = reader(MESSAGES, load_images=loader).read_all(sent())
    first = next(works)
    assert (first.line, given, len(loader.asked)) == (1, [1, 2, 3, 4, 5], 5)
    (message,) = unpack_request(first.request).messages
    assert message.parts[1] == ImagePart("image/png", b"messages.0.content.1.source")
    # Of images nobody knows how many tokens they are: all of the context is held.
    assert first.hold_micros == (1000 + 20) // 2


def test_a_row_whose_image_cannot_be_had_fails_alone() -> None:
    loader = Loader()

    def load(sources: Sequence[ImageSource]) -> Future[list[ImagePart]]:
        future = loader(sources)
        if len(loader.asked) == 1:
            future.set_exception(TandemError(ErrorCode.INVALID_REQUEST, "messages.0: gone"))
        else:
            loader.finish(-1)
        return future

    works: list[NewWork] = list(reader(MESSAGES, load_images=load).read_all([seeing(1), seeing(2)]))
    assert [(work.line, work.error_message) for work in works] == [
        (1, "messages.0: gone"),
        (2, ""),
    ]


def test_nothing_is_fetched_for_a_model_that_sees_nothing() -> None:
    assert not reader(MESSAGES).read(seeing(1, model=BLIND)).error_code


def test_what_an_answer_repeats_goes_with_the_row() -> None:
    assert reader(CHAT).read(row(CHAT_BODY)).echo is None
    hidden = reader(CHAT).read(row(CHAT_BODY | {"include_reasoning": False}))
    assert hidden.echo == b'{"reasoning":false}'
    hidden = reader(INLINE).read(row(RESPONSES_BODY | {"include_reasoning": False}))
    assert hidden.echo == b'{"reasoning":false}'
    told = reader(RESPONSES).read(row(RESPONSES_BODY | {"instructions": "be brief"})).echo
    assert told is not None
    assert msgspec.json.decode(told) == {
        "model": MODEL,
        "max_output_tokens": 10,
        "instructions": "be brief",
        "store": False,
    }
