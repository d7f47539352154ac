"""The names that servers' tools have for the model: unique, also beside the caller's own tools."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, count
from typing import Any

import msgspec

from inference.request import Tool

# What every model's chat template and every upstream takes.
_MAX_LENGTH = 64
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


class ListedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as its server describes it."""

    server: str
    name: str
    schema: dict[str, Any]
    description: str = ""


class Offer:
    """The servers' tools that one request is offered, under the names that the model knows.

    A tool keeps its own name where no other has it, else it is `server__tool`, and where that is
    taken too, a number follows. The caller's tools keep theirs. The same tools in the same order
    have the same names, or the prefix cache would not find them.
    """

    def __init__(self, own: Collection[Tool], listed: Sequence[ListedTool]) -> None:
        self._own = {tool.name for tool in own}
        self._by_name = dict(_named(self._own, listed))
        self._names = {(tool.server, tool.name): name for name, tool in self._by_name.items()}

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What the model is told of."""
        return tuple(
            Tool(name=name, schema=tool.schema, description=tool.description)
            for name, tool in self._by_name.items()
        )

    def find(self, name: str) -> ListedTool | None:
        """Return the servers' tool that the model knows by this name."""
        return self._by_name.get(name)

    def name_of(self, server: str, name: str) -> str:
        """Return the name of a server's tool, also of one that is offered no more."""
        if known := self._names.get((server, name)):
            return known
        plain = _plain(name)
        taken = plain in self._own or plain in self._by_name
        return _plain(f"{server}__{name}") if taken else plain

    def chosen(self, name: str) -> str | None:
        """Return the name of the tool that a caller means, or None if there is no such tool."""
        if name in self._own or name in self._by_name:
            return name
        for (server, own_name), known in self._names.items():
            if name in (own_name, f"{server}__{own_name}"):
                return known
        return None


def _named(own: Collection[str], listed: Sequence[ListedTool]) -> Iterator[tuple[str, ListedTool]]:
    shared = Counter(_plain(tool.name) for tool in listed)
    used = set(own)
    # Whoever can keep a name of its own comes before those that need another.
    kept = {name for name, number in shared.items() if number == 1} - used
    used |= kept
    for tool in listed:
        name = _plain(tool.name)
        if name not in kept:
            name = next(each for each in _others(tool) if each not in used)
            used.add(name)
        yield name, tool


def _others(tool: ListedTool) -> Iterable[str]:
    name = _plain(f"{tool.server}__{tool.name}")
    numbered = (f"{name[: _MAX_LENGTH - 4]}_{number}" for number in count(2))
    return chain([name], numbered)


def _plain(name: str) -> str:
    return _FORBIDDEN.sub("_", name)[:_MAX_LENGTH]
