"""The pages on compatibility and on bugs name only tests that exist, and all that they should."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.config import BASE_DIR
from tests.comparison.checks import CHECKS

_PAGES = [BASE_DIR / "docs" / "api" / name for name in ("compatibility.md", "bugs.md")]
_COMPATIBILITY, _BUGS = _PAGES
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_BUG_TEST = re.compile(r"^(?:async )?def (test_bug_(?:\d\d_(?:and_)?)+\w+)\(", re.MULTILINE)
_LAST_BUG = 65


def tables(page: Path) -> Iterator[list[list[str]]]:
    """Yield each table of a page as its rows of cells, the header first."""
    table: list[list[str]] = []
    for line in [*page.read_text(encoding="utf-8").splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
            assert not table or len(cells) == len(table[0]), line
            table.append(cells)
        elif table:
            yield [table[0], *table[2:]]
            table = []


ROWS = [
    pytest.param(row, id=row[0])
    for page in _PAGES
    for header, *rows in tables(page)
    if header[-1] == "shown by"
    for row in rows
]
NAMED = sorted({named for row in ROWS for named in _TEST.findall(row.values[0][-1])})  # type: ignore[index]


@pytest.mark.parametrize("row", ROWS)
def test_every_row_names_a_test(row: list[str]) -> None:
    assert _TEST.sub("", row[-1]).replace("<br>", "").strip() == ""
    assert _TEST.search(row[-1])


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_named_test_exists(path: str, name: str) -> None:
    code = (BASE_DIR / path).read_text(encoding="utf-8")
    assert re.search(rf"^(async )?def {name}\(", code, flags=re.MULTILINE)


def numbers(cell: str) -> set[int]:
    """Return the numbers of bugs in the first column of a row."""
    return {int(number) for number in cell.split(",")}


def test_every_bug_has_a_row_or_is_another_routes() -> None:
    here, elsewhere = tables(_BUGS)
    told = [numbers(row[0]) for row in (*here[1:], *elsewhere[1:])]
    assert set().union(*told) == set(range(1, _LAST_BUG + 1))


def test_the_tests_that_are_named_after_a_bug_are_in_its_row() -> None:
    here, elsewhere = tables(_BUGS)
    others = set().union(*(numbers(row[0]) for row in elsewhere[1:]))
    told = {
        (number, name)
        for row in here[1:]
        for number in numbers(row[0])
        for _, name in _TEST.findall(row[-1])
    }
    found = {
        (number, name)
        for path in (BASE_DIR / "tests").rglob("test_*.py")
        for name in _BUG_TEST.findall(path.read_text(encoding="utf-8"))
        for number in map(int, re.findall(r"(?<=_)\d\d(?=_)", name))
    }
    assert {(number, name) for number, name in found if number not in others} <= told


def test_tandem_does_all_that_is_compared() -> None:
    (compared,) = [table for table in tables(_COMPATIBILITY) if table[0][1] == "Tandem"]
    assert [row[:2] for row in compared[1:]] == [[check.statement, "yes"] for check in CHECKS]
