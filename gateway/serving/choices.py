"""Several answers to one prompt, as one source of events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from inference.errors import TandemError
from inference.events import Event, Failed, Finished, Started
from inference.fold import Answer, Parts
from inference.transport.run import Bell, Run


class Chosen(NamedTuple):
    """An event of one of the answers, which are counted from 0."""

    choice: int
    event: Event


class Choices:
    """The runs of one request's answers.

    The other runs begin when the first has put something out: they find the prompt in the cache.
    `bell` is the one of all the runs. When one fails, all do: an answer less is no answer.
    """

    def __init__(
        self, first: Run, bell: Bell, others: Callable[[], Awaitable[Sequence[Run]]] | None = None
    ) -> None:
        self._runs = [first]
        self._bell = bell
        self._others = others
        self._has_begun = False

    @property
    def model(self) -> str:
        """The model that answers."""
        return self._runs[0].request.model

    @property
    def shares_prompt(self) -> bool:
        """Whether the prompt counts once, of all answers."""
        return self._runs[0].request.shares_prompt

    async def next(self) -> list[Chosen]:
        """Return every event that has come since the last call, waiting for one or for `wake`.

        Raises `TandemError` if the other runs cannot begin.
        """
        if self._has_begun and self._others is not None:
            begin, self._others = self._others, None
            try:
                self._runs += await begin()
            except TandemError as error:
                self._give_up(Failed(code=error.code, message=error.message))
                raise
        events = self._take()
        if not events:
            await self._bell.wait()
            events = self._take()
        return events

    def wake(self) -> None:
        """Let a waiting `next` return, with nothing if nothing has come."""
        self._bell.ring()

    async def answers(self, count: int) -> list[Answer]:
        """Return the whole answers. Raises `TandemError` if a run failed."""
        parts = [Parts() for _ in range(count)]
        whole: dict[int, Answer] = {}
        while len(whole) < count:
            for choice, event in await self.next():
                match event:
                    case Finished():
                        whole[choice] = parts[choice].answer(event)
                    case Failed(code=code, message=message):
                        raise TandemError(code, message)
                    case Started():
                        pass
                    case _:
                        parts[choice].add(event)
        return [whole[choice] for choice in range(count)]

    def _take(self) -> list[Chosen]:
        events = [
            Chosen(choice, event) for choice, run in enumerate(self._runs) for event in run.take()
        ]
        for position, (choice, event) in enumerate(events):
            if isinstance(event, Failed):
                self._give_up(event)
                # What comes after the last frame is not for anybody.
                return events[: position + 1]
            if choice == 0 and not isinstance(event, Started):
                self._has_begun = True
        return events

    def _give_up(self, failed: Failed) -> None:
        for run in self._runs:
            run.give_up(failed)
