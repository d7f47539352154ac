"""How tokens are chosen and scored: of every backend where they can, of vLLM alone where not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from inference.errors import ErrorCode
from inference.events import Event, Failed, Finished, TextDelta, TokenLogprob
from tests.contracts.conftest import Subject
from tests.contracts.requests import collect, make_request, text_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

_QUESTION = "Tell me about the sea."


def _scores(events: list[Event]) -> list[TokenLogprob]:
    return [score for event in events if isinstance(event, TextDelta) for score in event.logprobs]


async def test_it_scores_nothing_unless_asked(subject: Subject) -> None:
    assert _scores(await collect(subject.backend, make_request(_QUESTION))) == []


async def test_it_scores_each_token_of_the_text(scoring: Subject) -> None:
    events = await collect(scoring.backend, make_request(_QUESTION, logprobs=3))

    scores = _scores(events)
    assert "".join(score.taken.token for score in scores) == text_of(events)
    assert all(score.taken.logprob <= 0 for score in scores)
    assert all(score.taken.data == score.taken.token.encode() for score in scores)
    for score in scores:
        likeliest = [likely.logprob for likely in score.likeliest]
        assert len(likeliest) == 3
        assert likeliest == sorted(likeliest, reverse=True)
        # At temperature 0 the likeliest one is taken.
        assert score.likeliest[0] == score.taken


async def test_it_scores_without_naming_others(scoring: Subject) -> None:
    scores = _scores(await collect(scoring.backend, make_request(_QUESTION, logprobs=0)))

    assert scores
    assert all(score.likeliest == () for score in scores)


@pytest.mark.engine
async def test_the_end_of_the_answer_and_a_stop_text_are_not_scored(vllm: Subject) -> None:
    request = make_request("What is the capital of France?", logprobs=0, stop=(" France",))
    events = await collect(vllm.backend, request)

    assert "".join(score.taken.token for score in _scores(events)).startswith(text_of(events))
    assert text_of(events) == "The capital of"


@pytest.mark.engine
async def test_a_seed_gives_the_same_answer_again(vllm: Subject) -> None:
    requests = [
        make_request(_QUESTION, temperature=1.5, seed=seed, max_tokens=24) for seed in (7, 7, 8)
    ]
    answers = [text_of(await collect(vllm.backend, request)) for request in requests]

    assert answers[0] == answers[1]
    assert answers[0] != answers[2]


@pytest.mark.engine
async def test_it_makes_at_least_as_many_tokens_as_it_must(vllm: Subject) -> None:
    *_, short = await collect(vllm.backend, make_request("What is the capital of France?"))
    *_, longer = await collect(
        vllm.backend, make_request("What is the capital of France?", min_tokens=14)
    )

    assert isinstance(short, Finished)
    assert isinstance(longer, Finished)
    assert short.usage.output_tokens < 14 <= longer.usage.output_tokens


@pytest.mark.engine
@pytest.mark.parametrize(
    "sampling",
    [
        {"repetition_penalty": 1.9},
        {"frequency_penalty": 2.0},
        {"presence_penalty": 2.0},
    ],
)
async def test_a_penalty_changes_what_repeats_itself(
    vllm: Subject, sampling: dict[str, Any]
) -> None:
    plain, changed = await asyncio.gather(
        collect(vllm.backend, make_request(vllm.story, max_tokens=64)),
        collect(vllm.backend, make_request(vllm.story, max_tokens=64, **sampling)),
    )

    assert text_of(plain) != text_of(changed)


@pytest.mark.engine
async def test_only_the_likeliest_tokens_are_left_by_the_largest_min_p(vllm: Subject) -> None:
    greedy = await collect(vllm.backend, make_request(_QUESTION))
    cut = await collect(vllm.backend, make_request(_QUESTION, temperature=1.0, min_p=1.0))

    assert text_of(cut) == text_of(greedy)


@pytest.mark.engine
async def test_a_bias_forbids_a_token(vllm: Subject) -> None:
    question = "What is the capital of France?"
    plain = await collect(vllm.backend, make_request(question, logprobs=0))
    # What " Paris" is to this model, found by its tokenizer in the engine's own process.
    paris = vllm.backend._runtime.prompts._chat.renderer.tokenizer.encode(  # type: ignore[attr-defined]
        " Paris", add_special_tokens=False
    )
    bias = {str(token_id): -100.0 for token_id in paris}
    biased = await collect(vllm.backend, make_request(question, logit_bias=bias))

    assert " Paris" in text_of(plain)
    assert " Paris" not in text_of(biased)


@pytest.mark.engine
async def test_a_bias_on_a_token_that_does_not_exist_is_explained(vllm: Subject) -> None:
    events = await collect(vllm.backend, make_request("Hello.", logit_bias={"99999999": 1.0}))

    assert isinstance(events[-1], Failed)
    assert events[-1].code is ErrorCode.INVALID_REQUEST
    assert "logit_bias" in events[-1].message
