"""The length checks."""

from __future__ import annotations

import pytest

from inference.backends.limits import allowed_tokens, check_lengths
from inference.errors import ErrorCode, TandemError
from inference.request import Sampling


def test_it_accepts_what_fits_exactly() -> None:
    check_lengths(prompt_tokens=60, max_tokens=40, context_tokens=100)


@pytest.mark.parametrize("prompt_tokens", [101, 5000])
def test_bug_31_a_prompt_beyond_the_context_is_refused_in_the_words_that_clients_know(
    prompt_tokens: int,
) -> None:
    with pytest.raises(TandemError) as caught:
        check_lengths(prompt_tokens=prompt_tokens, max_tokens=1, context_tokens=100)

    assert caught.value.code is ErrorCode.PROMPT_TOO_LONG
    assert caught.value.message == f"prompt is too long: {prompt_tokens} tokens > 100 maximum"


def test_it_refuses_an_answer_that_does_not_fit() -> None:
    with pytest.raises(TandemError) as caught:
        check_lengths(prompt_tokens=60, max_tokens=41, context_tokens=100)

    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.message == (
        "input length and `max_tokens` exceed context limit: 60 + 41 > 100, "
        "decrease input length or `max_tokens` and try again"
    )


def test_an_answer_without_a_length_of_its_own_gets_what_the_prompt_leaves() -> None:
    sampling = Sampling(max_tokens=100, cut_to_context=True)

    assert allowed_tokens(prompt_tokens=60, sampling=sampling, context_tokens=100) == 40
    with pytest.raises(TandemError) as caught:
        allowed_tokens(prompt_tokens=100, sampling=sampling, context_tokens=100)
    assert caught.value.code is ErrorCode.PROMPT_TOO_LONG


def test_an_answer_with_a_length_of_its_own_is_not_cut() -> None:
    with pytest.raises(TandemError):
        allowed_tokens(prompt_tokens=60, sampling=Sampling(max_tokens=41), context_tokens=100)
