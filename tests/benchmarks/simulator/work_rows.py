"""The rows of work that decode in a simulated engine, oldest first."""

from __future__ import annotations

import numpy as np

from tests.benchmarks.simulator.tally import Job


class WorkRows:
    """Rows, of which the first so many decode in a step. Kept as arrays: there are many."""

    def __init__(self, places: int) -> None:
        self.jobs: list[Job] = []
        self._left = np.zeros(places, dtype=np.int64)
        self._context = np.zeros(places, dtype=np.int64)
        self._all_context = 0

    def __len__(self) -> int:
        return len(self.jobs)

    def add(self, job: Job) -> None:
        """Add a row whose prompt is prefilled."""
        place = len(self.jobs)
        self.jobs.append(job)
        self._left[place] = job.output_tokens - job.made
        self._context[place] = job.computed
        self._all_context += job.computed

    def remove(self, job: Job) -> None:
        """Take a row out, and note in it how far it has come."""
        self._take_out(self.jobs.index(job))

    def context(self, rows: int | None = None) -> int:
        """Return the tokens of context of the first so many rows, or of all."""
        if rows is None or rows >= len(self.jobs):
            return self._all_context
        return int(self._context[:rows].sum())

    def least_left(self, rows: int) -> int:
        """Return in how many steps the first of so many rows ends."""
        return int(self._left[:rows].min())

    def decode(self, rows: int, steps: int) -> list[Job]:
        """Let the first so many rows put out tokens. Return those that have ended."""
        left = self._left[:rows]
        left -= steps
        self._context[:rows] += steps
        self._all_context += rows * steps
        if left.min() > 0:
            return []
        return [self._take_out(place) for place in np.flatnonzero(left <= 0)[::-1].tolist()]

    def _take_out(self, place: int) -> Job:
        job = self.jobs.pop(place)
        rows = len(self.jobs)
        job.made = job.output_tokens - int(self._left[place])
        job.computed = int(self._context[place])
        self._all_context -= job.computed
        for array in (self._left, self._context):
            array[place:rows] = array[place + 1 : rows + 1]
        return job
