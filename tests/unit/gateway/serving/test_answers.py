"""Answers on their way to the client."""

from __future__ import annotations

import threading

from gateway.serving.answers import rendered
from inference.events import Finished, FinishReason, Likely, TokenLogprob, Usage
from inference.fold import Answer
from inference.request import TextPart

DONE = Finished(
    reason=FinishReason.END, usage=Usage(prompt_tokens=1, cached_tokens=0, output_tokens=1)
)
SCORES = ((TokenLogprob(taken=Likely(token="a", logprob=-1.0, data=b"a")),),)
PLAIN = Answer(parts=(TextPart("a"),), finished=DONE)
SCORED = Answer(parts=(TextPart("a"),), finished=DONE, logprobs=SCORES)


def thread_name() -> bytes:
    return threading.current_thread().name.encode()


async def test_an_answer_with_log_probabilities_is_rendered_beside_the_event_loop() -> None:
    assert await rendered([PLAIN, SCORED], thread_name) != thread_name()


async def test_a_plain_answer_is_rendered_at_once() -> None:
    assert await rendered([PLAIN, PLAIN], thread_name) == thread_name()
