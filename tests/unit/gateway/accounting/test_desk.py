"""Who is let in, and what is recorded of it."""

from __future__ import annotations

import hashlib
import time
from datetime import datetime
from typing import Any

import msgspec
import pytest

from gateway.accounting.desk import Desk, Ticket, Visit
from gateway.config import Config
from gateway.http.request import ApiRequest
from gateway.keys import Principal
from inference.errors import ErrorCode, TandemError
from inference.events import (
    Event,
    Failed,
    Finished,
    FinishReason,
    RawFrame,
    Started,
    TextDelta,
    Usage,
)
from inference.fold import RawPart
from inference.request import (
    GenerationRequest,
    ImagePart,
    Message,
    RawRequest,
    Role,
    TextPart,
    ToolResultPart,
)
from inference.transport.frames import Frame
from inference.transport.records import Admitted, Closed, Ending, Record
from inference.transport.run import Run
from jobs.pricing import PriceList, PriceVersion
from jobs.quota.claims import Claim, Granted, Limits
from tests.contracts.requests import make_entry, make_request
from tests.raw_messages import STREAM
from tests.unit.jobs.prices import make_price

PRINCIPAL = Principal(key_id="k1", key_name="laptop", team_id=7, team_name="blue")
BODY = b'{"model":"model-under-test"}'
USAGE = Usage(prompt_tokens=5, cached_tokens=2, output_tokens=3)
FINISHED = Finished(reason=FinishReason.END, usage=USAGE)
RAW = msgspec.structs.replace(
    make_request(max_tokens=64), raw=RawRequest(path="/v1/messages", body=BODY, stream=True)
)


class Limiter:
    """Lets everybody in, and notes it."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self.released: list[tuple[Claim, int, int]] = []

    async def admit(self, claim: Claim) -> Granted:
        self.claims.append(claim)
        return Granted()

    def release(self, claim: Claim, prompt_tokens: int, output_tokens: int) -> None:
        self.released.append((claim, prompt_tokens, output_tokens))


class Rig:
    """A desk whose limiter and writer the test sees."""

    def __init__(self, **settings: Any) -> None:
        self.limiter = Limiter()
        self.records: list[Record] = []
        self.desk = Desk(Config(**settings), self.limiter, self)  # type: ignore[arg-type]

    def put(self, record: Record) -> None:
        self.records.append(record)

    async def admit(
        self,
        principal: Principal = PRINCIPAL,
        prompt: GenerationRequest | None = None,
        headers: list[tuple[bytes, bytes]] | None = None,
        body: bytes = BODY,
        ignored: tuple[str, ...] = ("speed",),
    ) -> Ticket:
        asked = ApiRequest({"headers": headers or [], "client": ("10.0.0.9", 1)}, body)
        visit = Visit(
            asked=asked,
            principal=principal,
            entry=make_entry(),
            prompt=prompt or make_request("hi"),
            dialect="anthropic",
            stream=True,
            ignored=ignored,
        )
        return await self.desk.admit(visit, PriceList([make_price()]))

    @property
    def admitted(self) -> Admitted:
        (found,) = [record for record in self.records if isinstance(record, Admitted)]
        return found

    @property
    def closed(self) -> Closed:
        (found,) = [record for record in self.records if isinstance(record, Closed)]
        return found


@pytest.fixture
def rig(no_settings: pytest.MonkeyPatch) -> Rig:
    return Rig()


def run_of(*events: Event, attempt: int = 0) -> Run:
    """Return a run whose engine has said these events."""
    run = Run(make_request("hi"), "queue", lambda _: None)
    for seq, event in enumerate(events):
        run.receive(Frame(run.request.id, attempt, "e1", seq, event))
    return run


async def test_what_is_known_at_the_door_is_recorded(rig: Rig) -> None:
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = [
        (b"user-agent", b"anthropic/2.14"),
        (b"traceparent", trace),
        (b"x-claude-code-session-id", b"session-1"),
    ]
    prompt = make_request("hi", max_tokens=9)
    await rig.admit(prompt=prompt, headers=headers)
    record = rig.admitted
    assert record.request_id == prompt.id
    assert (record.team_id, record.team_name) == (7, "blue")
    assert (record.key_id, record.key_name) == ("k1", "laptop")
    assert (record.client, record.address) == ("anthropic/2.14", "10.0.0.9")
    assert (record.trace_id, record.session_id) == (trace[3:35].decode(), "session-1")
    assert (record.dialect, record.stream, record.max_tokens) == ("anthropic", True, 9)
    assert record.ignored == ("speed",)
    assert record.deadline_s == prompt.deadline_s
    assert record.body == BODY
    assert record.body_digest == hashlib.sha256(BODY).digest()
    assert record.body_bytes == len(BODY)


async def test_a_key_of_another_service_is_not_recorded(rig: Rig) -> None:
    server = {"type": "url", "name": "wiki", "url": "https://a.test", "authorization_token": "sk-9"}
    sent = msgspec.json.encode({"model": "model-under-test", "mcp_servers": [server]})
    await rig.admit(body=sent)
    record = rig.admitted
    assert record.body
    assert b"sk-9" not in msgspec.msgpack.encode(record)
    assert b"https://a.test" in record.body
    assert record.body_digest == hashlib.sha256(record.body).digest()
    assert record.body_bytes == len(sent)


async def test_a_header_that_is_no_trace_is_no_trace(rig: Rig) -> None:
    await rig.admit(headers=[(b"traceparent", b"00-junk"), (b"user-agent", b"a\0b")])
    assert rig.admitted.trace_id == ""
    assert rig.admitted.client == "ab"


async def test_a_body_of_fields_that_nobody_knows_does_not_fill_the_trail(rig: Rig) -> None:
    await rig.admit(ignored=tuple(f"field{number}" for number in range(100_000)))
    assert len(rig.admitted.ignored) == 20


async def test_a_team_with_zero_retention_keeps_nothing_but_digests(rig: Rig) -> None:
    principal = msgspec.structs.replace(PRINCIPAL, zero_data_retention=True)
    ticket = await rig.admit(principal=principal)
    ticket.close(run_of(Started(5), TextDelta("hello"), FINISHED))
    assert (rig.admitted.body, rig.closed.answer) == (None, None)
    assert len(rig.admitted.body_digest) == len(rig.closed.answer_digest) == 32


@pytest.mark.parametrize("limits", [{"BODY_RETENTION_DAYS": 0}, {"BODY_MAX_BYTES": 5}])
async def test_what_is_not_to_be_kept_is_not_recorded(
    no_settings: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    rig = Rig(**limits)
    ticket = await rig.admit()
    ticket.close(run_of(Started(5), TextDelta("hello"), FINISHED))
    assert (rig.admitted.body, rig.closed.answer) == (None, None)


async def test_a_finished_request_is_closed_with_its_usage_and_answer(rig: Rig) -> None:
    ticket = await rig.admit()
    run = run_of(Started(5), TextDelta("hel"), TextDelta("lo"), FINISHED)
    before_s = time.time()
    ticket.close(run)
    record = rig.closed
    assert (record.ending, record.detail, record.usage) == (Ending.FINISHED, "end", USAGE)
    assert record.answer == msgspec.msgpack.encode([TextPart("hello")])
    assert record.answer_digest == hashlib.sha256(record.answer).digest()
    assert (record.engine_id, record.attempts) == ("e1", 1)
    assert record.first_token_at_s is not None
    assert before_s - 1 < record.first_token_at_s <= record.at_s
    assert rig.limiter.released == [(rig.limiter.claims[0], 5, 3)]


async def test_a_caller_that_leaves_is_closed_with_what_was_seen(rig: Rig) -> None:
    ticket = await rig.admit()
    run = run_of(Started(5), TextDelta("a"), TextDelta("b"))
    run.close()
    ticket.close(run)
    assert (rig.closed.ending, rig.closed.engine_id) == (Ending.CANCELLED, "e1")
    assert rig.closed.usage.prompt_tokens == 5
    assert rig.limiter.released == [(rig.limiter.claims[0], 5, 2)]


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        (ErrorCode.TIMEOUT, Ending.TIMEOUT),
        (ErrorCode.ENGINE_LOST, Ending.ENGINE_LOST),
        (ErrorCode.PROMPT_TOO_LONG, Ending.FAILED),
        (ErrorCode.INTERNAL, Ending.FAILED),
    ],
)
async def test_a_failure_is_closed_with_its_reason(
    rig: Rig, code: ErrorCode, ending: Ending
) -> None:
    ticket = await rig.admit()
    run = run_of(Started(5), TextDelta("a"))
    run.fail(code, "why")
    ticket.close(run)
    record = rig.closed
    assert (record.ending, record.detail, record.message) == (ending, code, "why")


async def test_a_request_that_no_queue_takes_is_closed_at_once(rig: Rig) -> None:
    ticket = await rig.admit()
    ticket.refuse(TandemError(ErrorCode.OVERLOADED, "busy"))
    record = rig.closed
    assert (record.ending, record.detail) == (Ending.FAILED, ErrorCode.OVERLOADED)
    assert record.engine_id is None
    assert rig.limiter.released == [(rig.limiter.claims[0], 0, 0)]


async def test_a_request_whose_caller_leaves_before_the_queue_is_closed(rig: Rig) -> None:
    ticket = await rig.admit()
    ticket.abandon()
    assert (rig.closed.ending, rig.closed.engine_id) == (Ending.CANCELLED, None)


async def test_the_most_that_a_request_can_cost_is_held(rig: Rig) -> None:
    limits = Limits(requests_per_minute=3)
    principal = msgspec.structs.replace(
        PRINCIPAL, prepaid=True, daily_spend_cap_micros=9, key_limits=limits
    )
    await rig.admit(principal=principal, prompt=make_request("hi", max_tokens=100))
    (claim,) = rig.limiter.claims
    assert claim.spend is not None
    # The context bounds the prompt: 1,024 tokens of input, and 100 of output at twice the price.
    assert claim.spend.hold_micros == 1024 * 1 + 100 * 2
    assert (claim.spend.prepaid, claim.spend.daily_cap_micros) == (True, 9)
    assert claim.key == limits
    assert 60_000 < claim.lease_ms < 70_000


async def test_a_request_is_held_and_recorded_at_one_moment(rig: Rig) -> None:
    """Or a price that begins between the two would cost more than is held."""
    asked: list[datetime] = []

    class Prices(PriceList):
        def at(self, model: str, when: datetime) -> PriceVersion | None:
            asked.append(when)
            return super().at(model, when)

    visit = Visit(
        ApiRequest({"headers": []}, BODY),
        PRINCIPAL,
        make_entry(),
        make_request("hi"),
        "a",
        True,
        (),
    )
    await rig.desk.admit(visit, Prices([make_price()]))
    assert [moment.timestamp() for moment in asked] == [rig.admitted.at_s]


@pytest.mark.parametrize("inside_a_result", [True, False])
async def test_a_body_does_not_bound_what_an_image_costs(
    no_settings: pytest.MonkeyPatch, inside_a_result: bool
) -> None:
    image = ImagePart("image/png", b"x")
    parts = (ToolResultPart(call_id="1", parts=(image,)),) if inside_a_result else (image,)
    plain, seeing = make_request("hi", max_tokens=1), make_request("hi", max_tokens=1)
    seeing = msgspec.structs.replace(seeing, messages=(Message(role=Role.USER, parts=parts),))
    holds = []
    for prompt in (plain, seeing):
        rig = Rig()
        asked = ApiRequest({"headers": []}, BODY)
        visit = Visit(asked, PRINCIPAL, make_entry(context_tokens=9000), prompt, "a", False, ())
        await rig.desk.admit(visit, PriceList([make_price()]))
        spend = rig.limiter.claims[0].spend
        assert spend is not None
        holds.append(spend.hold_micros)
    assert holds == [1024 + len(BODY) + 2, 9000 + 2]


async def test_of_several_answers_only_the_first_counts_the_prompt(rig: Rig) -> None:
    prompt = msgspec.structs.replace(make_request("hi"), choice=1)
    ticket = await rig.admit(prompt=prompt)
    run = Run(prompt, "queue", lambda _: None)
    said: list[Event] = [Started(5), TextDelta("hello"), FINISHED]
    for seq, event in enumerate(said):
        run.receive(Frame(prompt.id, 0, "e1", seq, event))
    ticket.close(run)
    assert rig.closed.usage == Usage(prompt_tokens=0, cached_tokens=0, output_tokens=3)
    ((claim, prompt_tokens, output_tokens),) = rig.limiter.released
    assert (claim.input_tokens, prompt_tokens, output_tokens) == (0, 0, 3)


async def test_of_several_answers_of_an_upstream_each_counts_the_prompt(rig: Rig) -> None:
    prompt = msgspec.structs.replace(make_request("hi"), choice=1, shares_prompt=False)
    ticket = await rig.admit(prompt=prompt)
    run = Run(prompt, "queue", lambda _: None)
    said: list[Event] = [Started(5), TextDelta("hello"), FINISHED]
    for seq, event in enumerate(said):
        run.receive(Frame(prompt.id, 0, "e1", seq, event))
    ticket.close(run)
    assert rig.closed.usage == USAGE
    ((claim, *_),) = rig.limiter.released
    assert claim.input_tokens == len(BODY) // 4


async def test_of_several_answers_only_the_first_keeps_the_body(rig: Rig) -> None:
    await rig.admit(prompt=msgspec.structs.replace(make_request("hi"), choice=1))
    assert rig.admitted.body is None
    assert rig.admitted.body_digest == hashlib.sha256(BODY).digest()


async def test_an_upstream_may_add_to_a_prompt_whatever_its_length(rig: Rig) -> None:
    await rig.admit(prompt=RAW)
    (claim,) = rig.limiter.claims
    assert claim.spend is not None
    assert claim.spend.hold_micros == 1024 * 1 + 64 * 2


async def test_what_an_upstream_said_is_recorded_as_it_came(rig: Rig) -> None:
    ticket = await rig.admit(prompt=RAW)
    ticket.close(run_of(Started(19), *map(RawFrame, STREAM), FINISHED))
    record = rig.closed
    assert rig.admitted.body == BODY
    assert record.answer == msgspec.msgpack.encode([RawPart(b"".join(STREAM))])
    assert record.answer_digest == hashlib.sha256(record.answer).digest()
    assert (record.ending, record.usage) == (Ending.FINISHED, USAGE)


async def test_of_what_an_upstream_broke_off_is_recorded_what_there_was(rig: Rig) -> None:
    ticket = await rig.admit(prompt=RAW)
    broken = Failed(code=ErrorCode.UNAVAILABLE, message="it broke off")
    ticket.close(run_of(Started(19), *map(RawFrame, STREAM[:3]), broken))
    assert rig.closed.answer == msgspec.msgpack.encode([RawPart(b"".join(STREAM[:3]))])
    assert (rig.closed.ending, rig.closed.usage.prompt_tokens) == (Ending.FAILED, 19)


async def test_a_request_holds_what_it_may_cost_at_its_fallback_by_the_price_of_its_time(
    rig: Rig,
) -> None:
    asked: list[datetime] = []

    class Prices(PriceList):
        def at(self, model: str, when: datetime) -> PriceVersion | None:
            asked.append(when)
            return super().at(model, when)

    principal = msgspec.structs.replace(PRINCIPAL, prepaid=True)
    prompt = make_request("hi", max_tokens=100)
    ticket = await rig.admit(principal=principal, prompt=prompt)
    other = Visit(
        ApiRequest({"headers": []}, BODY), principal, make_entry(), prompt, "a", False, ()
    )
    await rig.desk.hold(ticket, other, Prices([make_price(output_micros_per_mtok=9_000_000)]))
    first, second = rig.limiter.claims
    assert second.request_id == first.request_id
    assert second.spend is not None
    assert second.spend.hold_micros == 1024 + 900
    assert [moment.timestamp() for moment in asked] == [rig.admitted.at_s]
    ticket.abandon()
    assert rig.limiter.released == [(second, 0, 0)]


async def test_what_is_held_is_given_back_though_the_fallback_is_free(rig: Rig) -> None:
    principal = msgspec.structs.replace(PRINCIPAL, prepaid=True)
    ticket = await rig.admit(principal=principal)
    (claim,) = rig.limiter.claims
    free = Visit(
        ApiRequest({"headers": []}, BODY), principal, make_entry(), make_request(), "a", False, ()
    )
    await rig.desk.hold(ticket, free, PriceList([]))
    ticket.abandon()
    assert rig.limiter.released == [(claim, 0, 0)]


async def test_a_request_that_goes_to_its_fallback_is_recorded_once_more(rig: Rig) -> None:
    ticket = await rig.admit(body=b"{}")
    other = Visit(
        asked=ApiRequest({"headers": []}, b"{}"),
        principal=PRINCIPAL,
        entry=make_entry(id="near"),
        prompt=msgspec.structs.replace(make_request("hi", max_tokens=7), model="near"),
        dialect="anthropic",
        stream=True,
        ignored=("container",),
    )
    ticket.pass_on(other, attempts=2)
    first, second = (record for record in rig.records if isinstance(record, Admitted))
    assert second == msgspec.structs.replace(
        first,
        model="near",
        requested_model="model-under-test",
        attempts=2,
        max_tokens=7,
        ignored=("container",),
        body=None,
    )
