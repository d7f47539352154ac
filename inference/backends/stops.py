"""Ends an answer at a stop text, for engines that do not do it themselves."""

from __future__ import annotations


class StopFilter:
    """Lets text through up to the first stop text, whichever way both are cut into pieces.

    The stop text itself, and any beginning of one that may still become whole, is held back.
    `matched` is the stop text that was found.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.matched: str | None = None
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> str:
        """Take the next piece and return what may be shown now."""
        self._held += text
        found = [
            (at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0
        ]
        if found:
            # The one that was whole first wins, as if text came one character at a time.
            _, at, self.matched = min(found)
            shown, self._held = self._held[:at], ""
            return shown
        return self._release(self._risky())

    def flush(self) -> str:
        """The answer is over: return what was held back."""
        return self._release(0)

    def _risky(self) -> int:
        """How many of the last characters are the beginning of a stop text."""
        longest = max(map(len, self._stops), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stops):
                return size
        return 0

    def _release(self, keep: int) -> str:
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown
