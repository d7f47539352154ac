"""Where a stream's events come from, and what makes its frames of them."""

from __future__ import annotations

from typing import Protocol, TypeVar

from inference.errors import TandemError

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Source(Protocol[T]):
    """Where events come from: a run, several of them, or a log."""

    async def next(self) -> list[T]:
        """Wait for events, or for `wake`; empty if none came."""

    def wake(self) -> None:
        """Let a waiting `next` return."""


class Encoder(Protocol[T_contra]):
    """Makes a stream's frames of events. `over`: the last frame was made."""

    over: bool

    def refusal(self, event: T_contra) -> TandemError | None:
        """Return the error if the very first event says that there will be no answer."""

    def feed(self, event: T_contra) -> bytes:
        """Return the frames for the next event, empty if it has none."""

    def keep_alive(self, *, begun: bool) -> bytes:
        """Return what a quiet stream is kept alive with; `begun`: it has had events."""
