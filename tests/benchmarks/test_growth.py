"""How late an event is, told from the times that its token says."""

from __future__ import annotations

import msgspec
import pytest

from tests.benchmarks.growth import delays_ms, missed_steps
from tests.benchmarks.load import Sample
from tests.benchmarks.rounds import Round

_TOKENS = 64
_SENT_S = 1000.0
_WHOLE = Sample(
    # The first comes at once, the others 4 ms after their step, and the last one 30 ms.
    frames_s=[0.002, *(0.054 + 0.05 * number for number in range(_TOKENS - 2)), 3.18],
    end_s=3.2,
    text=" 1000.001" + "".join(f" {1000.05 + 0.05 * number:.3f}" for number in range(_TOKENS - 1)),
    stop_reason="max_tokens",
    output_tokens=_TOKENS,
    error="",
    clock_s=_SENT_S,
)


def _round(*samples: Sample) -> Round:
    return Round(
        samples=list(samples), began_at_s=0, wall_s=2, cpu_s={}, client_cpu=0, foreign_cpu=0
    )


def test_a_delay_is_from_the_step_to_the_arrival() -> None:
    assert delays_ms(_round(_WHOLE)) == pytest.approx([4.0] * (_TOKENS - 2) + [30.0])


def test_a_stream_that_is_not_whole_has_no_delays() -> None:
    broken = msgspec.structs.replace(_WHOLE, error="closed")
    short = msgspec.structs.replace(_WHOLE, output_tokens=_TOKENS - 1)
    joined = msgspec.structs.replace(_WHOLE, frames_s=_WHOLE.frames_s[:-1])

    assert delays_ms(_round(broken, short, joined)) == []


def test_steps_that_the_engine_left_out_are_counted() -> None:
    late = _WHOLE.text.split()
    late[-1] = f"{float(late[-1]) + 0.1:.3f}"

    assert missed_steps(_round(_WHOLE)) == 0
    assert missed_steps(_round(msgspec.structs.replace(_WHOLE, text=" ".join(late)), _WHOLE)) == 2
