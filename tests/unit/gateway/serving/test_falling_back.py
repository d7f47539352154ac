"""A request on its way from a model that cannot answer it to the fallback."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway.accounting.desk import Desk, Visit
from gateway.config import Config
from gateway.http.request import ApiRequest
from gateway.keys import Principal
from gateway.metrics import _fallbacks
from gateway.serving import answers as answers_module
from gateway.serving.answers import AnswerConsumer
from inference.catalogue import Catalogue, ModelEntry
from inference.errors import ErrorCode, TandemError
from inference.events import Event, Failed, Finished, FinishReason, Started, TextDelta, Usage
from inference.fold import fold
from inference.request import GenerationRequest
from inference.transport.frames import Frame
from inference.transport.records import Admitted, Closed, Ending, Record
from inference.transport.run import Bell, Run
from jobs.pricing import PriceList
from jobs.quota.claims import Claim, Granted
from tests.conftest import Eventually
from tests.contracts.requests import make_entry, make_request
from tests.unit.jobs.prices import make_price

PRINCIPAL = Principal(key_id="k1", key_name="laptop", team_id=7, team_name="blue")
FAR = make_entry(id="far", fallback="near")
NEAR = make_entry(id="near")
BODY = b'{"model":"far"}'
USAGE = Usage(prompt_tokens=5, cached_tokens=0, output_tokens=3)
ANSWER: list[Event] = [
    Started(5),
    TextDelta("hello"),
    Finished(reason=FinishReason.END, usage=USAGE),
]
AWAY: list[Event] = [Failed(code=ErrorCode.UNAVAILABLE, message="far is away")]
TOO_LONG: list[Event] = [Failed(code=ErrorCode.PROMPT_TOO_LONG, message="too long for near")]
NO_ENGINE = TandemError(ErrorCode.NO_ENGINE, "no engine of far", retry_after_s=5)
HEADER = (b"tandem-fallback", b"near")


class Consumer(AnswerConsumer):
    """One whose requests the test makes."""

    dialect = "anthropic"


class Rig:
    """A consumer whose engines say at once what `plays` has of their model, and its quota."""

    def __init__(self, far: list[Event] | TandemError, near: list[Event] | TandemError) -> None:
        self.plays = {"far": far, "near": near}
        self.runs: list[Run] = []
        self.left: list[Run] = []
        self.claims: list[Claim] = []
        self.refusal: TandemError | None = None
        self.records: list[Record] = []
        self.reread: list[ModelEntry] = []
        writer: Any = SimpleNamespace(put=self.records.append)
        limiter: Any = self
        services: Any = SimpleNamespace(
            config=Config(),
            directory=SimpleNamespace(
                catalogue=Catalogue([FAR, NEAR]),
                prices=PriceList(
                    [
                        make_price(id=1, model="far"),
                        make_price(id=2, model="near", output_micros_per_mtok=20_000_000),
                    ]
                ),
            ),
            dispatcher=SimpleNamespace(submit=self._submit),
            desk=Desk(Config(), limiter, writer),
        )
        self.consumer = Consumer(services)
        self.consumer.request = ApiRequest({"headers": [], "client": None}, BODY)
        self.consumer.principal = PRINCIPAL

    async def admit(self, claim: Claim) -> Granted:
        if self.claims and self.refusal is not None:
            raise self.refusal
        self.claims.append(claim)
        return Granted()

    def release(self, claim: Claim, prompt_tokens: int, output_tokens: int) -> None:
        pass

    async def _submit(
        self, prompt: GenerationRequest, *, bell: Bell, attempt: int, **_: object
    ) -> Run:
        plays = self.plays[prompt.model]
        if isinstance(plays, TandemError):
            raise plays
        run = Run(prompt, "queue", self.left.append, bell)
        run.attempt = attempt
        self.runs.append(run)
        self.say(run, *plays)
        return run

    def say(self, run: Run, *events: Event) -> None:
        for event in events:
            engine = f"e-{run.request.model}"
            run.receive(Frame(run.request.id, run.attempt, engine, run._next_seq, event))

    def visit(self, entry: ModelEntry = FAR, **fields: Any) -> Visit:
        prompt = msgspec.structs.replace(make_request("hi"), model=entry.id, **fields)
        return self.consumer.visit(entry, prompt, stream=True)

    async def read_for(self, entry: ModelEntry) -> Sequence[Visit]:
        self.reread.append(entry)
        self.consumer.extra_headers.append((b"tandem-ignored-fields", b"speed"))
        return [self.visit(entry)]

    async def ask(self) -> str:
        """Return what is answered."""
        async with self.consumer.running(self.visit(), self.read_for) as run:
            return (await fold(run)).text

    @property
    def admitted(self) -> list[Admitted]:
        return [record for record in self.records if isinstance(record, Admitted)]

    @property
    def closed(self) -> Closed:
        (found,) = [record for record in self.records if isinstance(record, Closed)]
        return found


async def test_the_fallback_answers_where_the_model_fails(no_settings: object) -> None:
    rig = Rig(AWAY, ANSWER)
    counter = _fallbacks.labels("far", "near")
    before = counter._value.get()
    assert await rig.ask() == "hello"
    assert HEADER in rig.consumer.extra_headers
    assert counter._value.get() == before + 1
    assert rig.reread == [NEAR]
    asked, answered = rig.runs
    assert answered.request.id == asked.request.id
    assert answered.request.deadline_s == asked.request.deadline_s
    assert (asked.attempt, answered.attempt) == (0, 1)


async def test_the_fallback_answers_where_no_engine_does(no_settings: object) -> None:
    rig = Rig(NO_ENGINE, ANSWER)
    assert await rig.ask() == "hello"
    assert HEADER in rig.consumer.extra_headers
    assert [run.attempt for run in rig.runs] == [0]


async def test_the_trail_has_both_models_and_one_end(no_settings: object) -> None:
    rig = Rig(AWAY, ANSWER)
    await rig.ask()
    first, second = rig.admitted
    assert (first.model, first.requested_model, first.attempts) == ("far", "", 0)
    assert (second.model, second.requested_model, second.attempts) == ("near", "far", 2)
    assert (first.body, second.body, second.body_digest) == (BODY, None, first.body_digest)
    assert second.at_s == first.at_s
    assert (rig.closed.ending, rig.closed.attempts) == (Ending.FINISHED, 2)
    assert (rig.closed.engine_id, rig.closed.usage) == ("e-near", USAGE)


async def test_what_the_fallback_may_cost_is_held_before_it_is_asked(no_settings: object) -> None:
    rig = Rig(AWAY, ANSWER)
    await rig.ask()
    cheap, dear = rig.claims
    assert cheap.spend
    assert dear.spend
    assert dear.request_id == cheap.request_id
    assert (cheap.spend.hold_micros, dear.spend.hold_micros) == (1024 + 32, 1024 + 320)


async def test_who_cannot_pay_for_the_fallback_gets_the_models_error(no_settings: object) -> None:
    rig = Rig(AWAY, ANSWER)
    rig.refusal = TandemError(ErrorCode.BALANCE_EXHAUSTED, "no money")
    with pytest.raises(TandemError, match="far is away"):
        await rig.ask()
    assert [run.request.model for run in rig.runs] == ["far"]
    assert [record.model for record in rig.admitted] == ["far"]
    assert rig.consumer.extra_headers == []


@pytest.mark.parametrize(("far", "attempts"), [(AWAY, 2), (NO_ENGINE, 0)])
@pytest.mark.parametrize("near", [TOO_LONG, NO_ENGINE])
async def test_a_fallback_that_fails_too_leaves_the_models_error(
    no_settings: object,
    far: list[Event] | TandemError,
    near: list[Event] | TandemError,
    attempts: int,
) -> None:
    rig = Rig(far, near)
    with pytest.raises(TandemError, match=r"far is away|no engine of far") as caught:
        await rig.ask()
    assert rig.consumer.extra_headers == []
    assert (rig.closed.ending, rig.closed.message) == (Ending.FAILED, caught.value.message)
    taken = not isinstance(near, TandemError)
    assert rig.closed.attempts == (attempts if taken else min(attempts, 1))
    assert len(rig.admitted) == 1 + taken


async def test_a_request_that_its_model_answers_stays_there(no_settings: object) -> None:
    rig = Rig(ANSWER, NO_ENGINE)
    assert await rig.ask() == "hello"
    assert (rig.reread, rig.consumer.extra_headers) == ([], [])
    assert len(rig.admitted) == 1


async def test_an_answer_that_breaks_off_is_not_begun_anew(no_settings: object) -> None:
    rig = Rig([Started(5), TextDelta("hel"), *AWAY], ANSWER)
    with pytest.raises(TandemError, match="far is away"):
        await rig.ask()
    assert rig.reread == []


async def test_nothing_is_told_before_an_answer_has_begun(
    no_settings: object, eventually: Eventually
) -> None:
    rig = Rig([Started(5)], ANSWER)
    asking = asyncio.create_task(rig.ask())
    await eventually(lambda: bool(rig.runs))
    rig.say(rig.runs[0], *AWAY)
    assert await asking == "hello"


async def test_who_leaves_while_the_fallback_is_asked_pays_for_that(
    no_settings: object, eventually: Eventually
) -> None:
    rig = Rig(AWAY, [Started(5)])
    asking = asyncio.create_task(rig.ask())
    await eventually(lambda: len(rig.runs) == 2)
    asking.cancel()
    await asyncio.wait([asking])
    assert rig.left == [rig.runs[1]]
    assert (rig.closed.ending, rig.closed.attempts) == (Ending.CANCELLED, 2)
    assert [record.model for record in rig.admitted] == ["far", "near"]


async def test_a_body_that_the_fallback_cannot_read_leaves_the_models_error(
    no_settings: object,
) -> None:
    rig = Rig(AWAY, ANSWER)

    async def refuse(_: ModelEntry) -> Sequence[Visit]:
        raise TandemError(ErrorCode.INVALID_REQUEST, "near knows no such tool")

    with pytest.raises(TandemError, match="far is away"):
        async with rig.consumer.running(rig.visit(), refuse) as run:
            await fold(run)
    assert len(rig.runs) == 1


async def test_all_of_several_answers_are_the_fallbacks(no_settings: object) -> None:
    rig = Rig(AWAY, ANSWER)
    visits = [rig.visit(choice=number) for number in range(3)]

    async def read_for(entry: ModelEntry) -> Sequence[Visit]:
        return [rig.visit(entry, choice=number) for number in range(3)]

    async with rig.consumer.choosing(visits, read_for) as choices:
        assert choices.model == "near"
        answers = await choices.answers(3)
    assert [answer.text for answer in answers] == ["hello"] * 3
    asked = [visit.prompt.id for visit in visits]
    assert [(run.request.model, run.request.id) for run in rig.runs] == [
        ("far", asked[0]),
        *(("near", each) for each in asked),
    ]
    moved = [record for record in rig.admitted if record.requested_model]
    assert [(record.request_id, record.attempts) for record in moved] == [
        (asked[0], 2),
        (asked[1], 1),
        (asked[2], 1),
    ]
    ends = [record for record in rig.records if isinstance(record, Closed)]
    assert {record.request_id for record in ends} == set(asked)
    assert {record.ending for record in ends} == {Ending.FINISHED}


async def test_a_stream_is_not_kept_waiting_for_ever(
    no_settings: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers_module, "STREAM_WAIT_S", 0)
    rig = Rig([], ANSWER)
    async with rig.consumer.running(rig.visit(), rig.read_for) as run:
        rig.say(run, *AWAY)
        with pytest.raises(TandemError, match="far is away"):
            await fold(run)
    assert rig.reread == []


async def test_a_stream_stays_with_the_fallback_once_it_has_waited_enough(
    no_settings: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers_module, "STREAM_WAIT_S", 0)
    rig = Rig(NO_ENGINE, [])
    async with rig.consumer.running(rig.visit(), rig.read_for) as run:
        assert HEADER in rig.consumer.extra_headers
        rig.say(run, *ANSWER)
        assert (await fold(run)).text == "hello"
