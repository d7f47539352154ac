"""`/v1/models` in one row and one envelope that the Anthropic and the OpenAI SDKs both parse.

Every alias has a row of its own in the list, right after its model's: clients that look for names
of a certain kind find it there (Claude Code keeps ids that contain `claude` or `anthropic`), and
its `display_name` says which model answers. Asked for by itself, an alias gives its model's row,
as answers to it do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, NamedTuple

import msgspec

from gateway.http.query import integer
from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError

MAX_PAGE = 1000
DEFAULT_PAGE = 20

# Every model that is listed can be called, by anybody, and none has a date to go.
_STAGE = "active"
STAGES = frozenset({"active", "deprecated", "retired"})
# The SDKs write a list's name with brackets, people without.
_STAGE_NAMES = ("lifecycle", "lifecycle[]")

_NO = {"supported": False}
_YES = {"supported": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which part of the list is wanted: next to one id, on one side of it.

    `lifecycle` names the stages that are wanted; empty means those that can be called.
    """

    after_id: str | None = None
    before_id: str | None = None
    limit: int = DEFAULT_PAGE
    lifecycle: frozenset[str] = frozenset()


def decode_page(query: Sequence[tuple[str, str]]) -> Page:
    """Read the paging parameters of a query string. Raises INVALID_REQUEST naming a wrong one.

    `lifecycle` is a list and may be repeated; of the others the last one counts.
    """
    last = dict(query)
    after_id, before_id = last.get("after_id"), last.get("before_id")
    if after_id is not None and before_id is not None:
        raise _invalid("before_id: cannot be combined with after_id")
    return Page(
        after_id=after_id,
        before_id=before_id,
        limit=integer(last, "limit", DEFAULT_PAGE, at_least=1, at_most=MAX_PAGE),
        lifecycle=_lifecycle(value for name, value in query if name in _STAGE_NAMES),
    )


def render_list(entries: Sequence[ModelEntry], page: Page | None) -> bytes:
    """Return the list as JSON. `page` None is OpenAI's way: all of it.

    Raises INVALID_REQUEST if the page starts at a model that is not in the list.
    """
    names = list(_names(entries))
    shown, has_more = (names, False) if page is None else _cut(names, page)
    if page and page.lifecycle and _STAGE not in page.lifecycle:
        shown, has_more = [], False
    return msgspec.json.encode(
        {
            "object": "list",
            "data": [_row(name) for name in shown],
            "has_more": has_more,
            "first_id": shown[0].id if shown else None,
            "last_id": shown[-1].id if shown else None,
        }
    )


def render_model(entry: ModelEntry) -> bytes:
    """Return one model as JSON."""
    return msgspec.json.encode(_row(_Name(entry.id, entry)))


class _Name(NamedTuple):
    """A name that callers may use, and the model that answers to it."""

    id: str
    entry: ModelEntry


def _names(entries: Sequence[ModelEntry]) -> Iterator[_Name]:
    """Yield every name once, whatever its case, with the model that the catalogue finds for it."""
    taken = {entry.id.lower() for entry in entries}
    for entry in entries:
        yield _Name(entry.id, entry)
        for alias in entry.aliases:
            if alias.lower() not in taken:
                taken.add(alias.lower())
                yield _Name(alias, entry)


def _lifecycle(values: Iterable[str]) -> frozenset[str]:
    wanted = frozenset(values)
    if wanted - STAGES:
        raise _invalid("lifecycle: Input should be 'active', 'deprecated' or 'retired'")
    return wanted


def _cut(names: Sequence[_Name], page: Page) -> tuple[Sequence[_Name], bool]:
    """Return the page and whether the list goes on beyond it, in the page's direction."""
    if page.before_id is not None:
        side = names[: _position(names, "before_id", page.before_id)]
        return side[-page.limit :], len(side) > page.limit
    start = 0 if page.after_id is None else _position(names, "after_id", page.after_id) + 1
    side = names[start:]
    return side[: page.limit], len(side) > page.limit


def _position(names: Sequence[_Name], field: str, model_id: str) -> int:
    for position, name in enumerate(names):
        if name.id.lower() == model_id.lower():
            return position
    raise _invalid(f"{field}: model '{model_id}' not found")


def _row(name: _Name) -> dict[str, Any]:
    entry = name.entry
    created = entry.created_at.astimezone(UTC).replace(microsecond=0)
    is_alias = name.id != entry.id
    return {
        "id": name.id,
        "object": "model",
        "created": int(created.timestamp()),
        "owned_by": "tandem",
        "type": "model",
        "display_name": f"{name.id} ({entry.display_name})" if is_alias else entry.display_name,
        "created_at": created,
        "lifecycle": _STAGE,
        "deprecated_at": None,
        "retires_at": None,
        "line": None,
        "max_input_tokens": entry.context_tokens,
        "max_tokens": entry.context_tokens,
        "provider": "tandem",
        "modality": "text_generation",
        "context_tokens": entry.context_tokens,
        "capabilities": _capabilities(entry),
    }


def _capabilities(entry: ModelEntry) -> dict[str, Any]:
    """Return Anthropic's keys, every one of them, and `tools`, which sference's clients read."""
    thinks = {"supported": entry.reasoning != "none"}
    return {
        "batch": _YES,
        "citations": _NO,
        "code_execution": _NO,
        "context_management": {
            **_NO,
            "clear_thinking_20251015": _NO,
            "clear_tool_uses_20250919": _NO,
            "compact_20260112": _NO,
        },
        "effort": {**_NO, "low": _NO, "medium": _NO, "high": _NO, "xhigh": _NO, "max": _NO},
        "image_input": {"supported": entry.vision},
        "pdf_input": _NO,
        "server_tools": {**_NO, "code_execution": _NO, "web_search": _NO},
        "structured_outputs": _YES,
        "thinking": {
            **thinks,
            "types": {
                "adaptive": thinks,
                "between_tools": _NO,
                "disabled": {"supported": entry.reasoning != "always"},
                "enabled": thinks,
            },
        },
        "tools": {"supported": entry.calls_tools},
    }


def _invalid(message: str) -> TandemError:
    return TandemError(ErrorCode.INVALID_REQUEST, message)
