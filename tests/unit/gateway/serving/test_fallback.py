"""When another model answers, which, and what requests."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from gateway.accounting.desk import Visit
from gateway.dialects.placeholder import OMITTED, REMINDER
from gateway.http.request import ApiRequest
from gateway.keys import Principal
from gateway.serving.fallback import covers, find_fallback, handed_over, is_stranded
from gateway.serving.served import Served
from inference.catalogue import Catalogue, ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, FinishReason, Started, TextDelta, Usage
from inference.request import GenerationRequest, Lane, Message, Role, TextPart, Tool
from inference.transport.frames import Frame
from inference.transport.run import MAX_ATTEMPTS, Run, Verdict
from tests.contracts.requests import make_entry, make_request

PRINCIPAL = Principal(key_id="k1", key_name="laptop", team_id=7, team_name="blue")
NEAR = make_entry(id="near")
FAR = make_entry(id="far", fallback="near")
TOOL = Tool(name="look", schema={"type": "object"})
USAGE = Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)


def visit_to(
    entry: ModelEntry, prompt: GenerationRequest | None = None, body: bytes = b"{}"
) -> Visit:
    return Visit(
        asked=ApiRequest({"headers": []}, body),
        principal=PRINCIPAL,
        entry=entry,
        prompt=prompt or make_request("hi"),
        dialect="anthropic",
        stream=True,
        ignored=(),
    )


def served_to(*events: Event, attempt: int = 0, **fields: Any) -> Served:
    """Return a request whose engine has said these events."""
    prompt = msgspec.structs.replace(make_request("hi"), **fields)
    run = Run(prompt, "queue", lambda _: None)
    run.attempt = attempt
    for seq, event in enumerate(events):
        if run.receive(Frame(prompt.id, attempt, "e1", seq, event)) is Verdict.RETRY:
            run.fail(ErrorCode.ENGINE_LOST, "there is no other")
    return Served(visit_to(FAR, prompt), None, run=run)  # type: ignore[arg-type]


def refused(code: ErrorCode) -> Served:
    """Return a request that no queue has taken."""
    return Served(visit_to(FAR), None, error=TandemError(code, "no"))  # type: ignore[arg-type]


def failed(code: ErrorCode) -> Failed:
    return Failed(code=code, message="no")


def test_the_fallback_is_the_model_that_the_entry_names() -> None:
    catalogue = Catalogue([FAR, NEAR])
    assert find_fallback(catalogue, PRINCIPAL, FAR) is NEAR
    assert find_fallback(catalogue, PRINCIPAL, NEAR) is None


def test_a_model_that_is_disabled_is_no_fallback_nor_is_one_with_its_name_as_an_alias() -> None:
    assert find_fallback(Catalogue([FAR]), PRINCIPAL, FAR) is None
    other = make_entry(id="other", aliases=("near",))
    assert find_fallback(Catalogue([FAR, other]), PRINCIPAL, FAR) is None


def test_a_model_that_the_key_may_not_use_is_no_fallback() -> None:
    catalogue = Catalogue([FAR, NEAR])
    for allowed, found in (({"far"}, None), ({"far", "near"}, NEAR)):
        principal = msgspec.structs.replace(PRINCIPAL, allowed_models=frozenset(allowed))
        assert find_fallback(catalogue, principal, FAR) is found


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NO_ENGINE,
        ErrorCode.OVERLOADED,
        ErrorCode.UNAVAILABLE,
        ErrorCode.TIMEOUT,
        ErrorCode.RESOURCE_UNAVAILABLE,
        ErrorCode.ENGINE_LOST,
    ],
)
def test_a_request_is_stranded_where_its_model_cannot_answer(code: ErrorCode) -> None:
    assert is_stranded(served_to(failed(code)))
    assert is_stranded(served_to(Started(3), failed(code)))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.PROMPT_TOO_LONG,
        ErrorCode.TOO_LARGE,
        ErrorCode.INTERNAL,
        ErrorCode.CANCELLED,
    ],
)
def test_what_is_wrong_with_a_request_is_its_callers_to_know(code: ErrorCode) -> None:
    assert not is_stranded(served_to(failed(code)))
    assert not is_stranded(refused(code))


@pytest.mark.parametrize("code", [ErrorCode.NO_ENGINE, ErrorCode.OVERLOADED])
def test_a_request_that_no_queue_takes_is_stranded(code: ErrorCode) -> None:
    assert is_stranded(refused(code))


def test_without_redis_no_model_answers() -> None:
    assert not is_stranded(refused(ErrorCode.UNAVAILABLE))


def test_an_answer_that_has_begun_is_not_begun_anew() -> None:
    lost = failed(ErrorCode.UNAVAILABLE)
    assert not is_stranded(served_to(Started(3), TextDelta("a"), lost))
    assert not is_stranded(served_to(Started(3), TextDelta("a")))
    finished = Finished(reason=FinishReason.END, usage=USAGE)
    assert not is_stranded(served_to(Started(3), finished))


def test_nobody_is_tried_once_the_time_is_up() -> None:
    late = served_to(failed(ErrorCode.TIMEOUT), deadline_s=time.time() - 1)
    assert not is_stranded(late)


def test_a_request_under_which_engines_die_kills_no_others() -> None:
    lost = failed(ErrorCode.ENGINE_LOST)
    assert is_stranded(served_to(lost, attempt=MAX_ATTEMPTS - 2))
    assert not is_stranded(served_to(lost, attempt=MAX_ATTEMPTS - 1))


def test_a_flex_request_for_which_there_is_no_room_stays_refused() -> None:
    no_room = failed(ErrorCode.RESOURCE_UNAVAILABLE)
    assert not is_stranded(served_to(no_room, lane=Lane.FLEX))
    assert is_stranded(served_to(failed(ErrorCode.UNAVAILABLE), lane=Lane.FLEX))


def test_a_fallback_that_can_as_much_gets_any_request() -> None:
    prompt = msgspec.structs.replace(make_request("hi", max_tokens=10**6), tools=(TOOL,))
    assert covers(FAR, visit_to(NEAR, prompt, body=b" " * 10**6))


def test_images_are_not_left_out_by_a_fallback() -> None:
    blind = msgspec.structs.replace(
        make_request("hi"), messages=(Message(role=Role.USER, parts=(OMITTED, REMINDER)),)
    )
    seeing = msgspec.structs.replace(FAR, vision=True)
    assert not covers(seeing, visit_to(NEAR, blind))
    assert covers(seeing, visit_to(NEAR))
    # Neither sees: the caller is told so by both.
    assert covers(FAR, visit_to(NEAR, blind))
    # A caller may write what it likes.
    said = make_request(Message(role=Role.USER, parts=(TextPart(REMINDER.text),)))
    assert covers(seeing, visit_to(NEAR, said))


def test_tools_are_not_left_uncalled_by_a_fallback() -> None:
    with_tools = msgspec.structs.replace(make_request("hi"), tools=(TOOL,))
    silent = make_entry(id="near", backend="vllm")
    assert not covers(FAR, visit_to(silent, with_tools))
    assert covers(FAR, visit_to(silent))
    assert covers(FAR, visit_to(msgspec.structs.replace(silent, tool_parser="hermes"), with_tools))
    assert covers(msgspec.structs.replace(silent, id="far"), visit_to(silent, with_tools))


def test_a_smaller_context_must_hold_the_prompt_and_the_answer() -> None:
    small = make_entry(id="near", context_tokens=100)
    fits = visit_to(small, make_request("hi", max_tokens=90), body=b" " * 40)
    assert covers(FAR, fits)
    assert not covers(FAR, fits._replace(prompt=make_request("hi", max_tokens=91)))
    assert not covers(FAR, fits._replace(asked=ApiRequest({"headers": []}, b" " * 44)))
    # Who names no number gets what the prompt leaves.
    unbounded = make_request("hi", max_tokens=100, cut_to_context=True)
    assert covers(FAR, fits._replace(prompt=unbounded))


def test_a_request_keeps_its_id_and_its_deadline() -> None:
    before = served_to()
    again = visit_to(NEAR, make_request("hi again"))
    moved = handed_over(before, again)
    assert moved.entry is NEAR
    assert moved.prompt.messages == again.prompt.messages
    assert moved.prompt.id == before.visit.prompt.id
    assert moved.prompt.deadline_s == before.visit.prompt.deadline_s
