"""How long an engine's steps take: learned from those that it has made.

A step's time is close to linear in what runs in it: a fixed part (reading the weights), a part for
each row that decodes, one for each token of a prompt that is prefilled, and one for each token of
context that is read. All of it is learned while serving, on whatever machine that is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# What is learned of a kind of step is worth this many of its last steps.
_MEMORY_STEPS = 24
_FIT_EVERY_STEPS = 8
# Until more is known, this many rows are taken to double the time of a step without any.
_PRIOR_ROWS = 32
# A step that took so many times longer than it should, or shorter, says something of the machine.
_OUTLIER = 4.0
# No step takes less, whatever a clock says.
_LEAST_S = 1e-4
_OUTLIER_AFTER_STEPS = 64
# A machine that has become slower or faster is known as such after about so many steps.
_DRIFT_STEPS = 10
# Features have about the same size then.
_CONTEXT_UNIT = 1024.0


class Step(NamedTuple):
    """What runs in one step: rows that put out a token, prompts' tokens, tokens of context read."""

    rows: int
    prefill_tokens: int = 0
    context_tokens: int = 0


class _Kind:
    """What steps of about the same size took on average. Later ones weigh more."""

    __slots__ = ("features", "seen", "time_s")

    def __init__(self) -> None:
        self.seen = 0
        self.features = np.zeros(4)
        self.time_s = 0.0

    def add(self, features: np.ndarray, time_s: float) -> None:
        self.seen = min(self.seen + 1, _MEMORY_STEPS)
        self.features += (features - self.features) / self.seen
        self.time_s += (time_s - self.time_s) / self.seen


class StepModel:
    """Predicts the time of a step, in seconds.

    Steps are remembered by their kind, so that an hour of the same ones does not wash out what
    others took. How much slower the machine has become since holds for every kind. `base_s`,
    `row_s`, `token_s` and `context_s` are the parts' shares, the last one for each token; all zero
    until a step was seen.
    """

    def __init__(self) -> None:
        self.base_s = self.row_s = self.token_s = self.context_s = 0.0
        self._kinds: dict[tuple[int, int, int], _Kind] = {}
        self._steps = 0
        self._fitted = np.zeros(4)
        self._drift = 1.0

    @property
    def is_known(self) -> bool:
        """Whether there is anything to predict from."""
        return self._steps > 0

    def predict(self, step: Step) -> float:
        """Return how long a step takes."""
        return (
            self.base_s
            + self.row_s * step.rows
            + self.token_s * step.prefill_tokens
            + self.context_s * step.context_tokens
        )

    def learn(self, step: Step, time_s: float) -> None:
        """Take in how long a step took."""
        expected_s = self.predict(step)
        # Of two steps that ended while nobody looked, the second seems to have taken no time.
        time_s = max(time_s, expected_s / _OUTLIER, _LEAST_S)
        if self._steps >= _OUTLIER_AFTER_STEPS and expected_s:
            time_s = min(time_s, _OUTLIER * expected_s)
            self._drift *= 1 + (time_s / expected_s - 1) / _DRIFT_STEPS
        kind = (
            step.rows.bit_length(),
            step.prefill_tokens.bit_length(),
            step.context_tokens.bit_length(),
        )
        features = np.array(
            [1.0, step.rows, step.prefill_tokens, step.context_tokens / _CONTEXT_UNIT]
        )
        self._kinds.setdefault(kind, _Kind()).add(features, time_s)
        self._steps += 1
        if self._steps < _OUTLIER_AFTER_STEPS or self._steps % _FIT_EVERY_STEPS == 0:
            self._fit()
        self.base_s, self.row_s, self.token_s, self.context_s = map(
            float, self._fitted * self._drift
        )

    def _fit(self) -> None:
        """Fit the shares to what the kinds took, none of them below zero.

        What counts is how far off a prediction is in proportion. Where the steps so far do not
        tell two shares apart, the prior does.
        """
        kinds = list(self._kinds.values())
        times_s = np.array([kind.time_s for kind in kinds])
        weights = np.sqrt([kind.seen for kind in kinds]) / times_s
        features = np.array([kind.features for kind in kinds]) * weights[:, None]
        wanted = times_s * weights
        fastest_s = float(times_s.min())
        prior = np.array([fastest_s, fastest_s / _PRIOR_ROWS, fastest_s / _PRIOR_ROWS, 0.0])
        # Each is worth one step in which it makes as much of a difference as the fastest step.
        scale = np.array([0.3, 0.3 * _PRIOR_ROWS, 0.3 * _PRIOR_ROWS, 3.0]) / fastest_s
        active = [True, True, True, True]
        while True:
            rows = np.vstack([features[:, active], np.diag(scale)[:, active][active]])
            values = np.concatenate([wanted, (prior * scale)[active]])
            shares = np.linalg.lstsq(rows, values, rcond=None)[0]
            if (shares >= 0).all():
                break
            places = [place for place, on in enumerate(active) if on]
            active[places[int(shares.argmin())]] = False
        self._fitted = np.zeros(4)
        self._fitted[active] = shares
        self._fitted[3] /= _CONTEXT_UNIT
