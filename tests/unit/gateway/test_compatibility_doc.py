"""The page on compatibility names only tests that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gateway.config import BASE_DIR

_PAGE = BASE_DIR / "docs" / "api" / "compatibility.md"
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> Iterator[list[str]]:
    """Yield the cells of each row whose table says which test shows it."""
    width = 0
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            width = 0
        elif cells[-1] == "shown by":
            width = len(cells)
        elif width and set(line) != {"|", "-", " "}:
            assert len(cells) == width, line
            yield cells


ROWS = list(rows())
NAMED = sorted({named for row in ROWS for named in _TEST.findall(row[-1])})


def test_the_page_has_rows() -> None:
    assert ROWS


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_row_names_a_test(row: list[str]) -> None:
    assert _TEST.sub("", row[-1]).replace("<br>", "").strip() == ""
    assert _TEST.search(row[-1])


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_named_test_exists(path: str, name: str) -> None:
    code = (BASE_DIR / path).read_text(encoding="utf-8")
    assert re.search(rf"^(async )?def {name}\(", code, flags=re.MULTILINE)
