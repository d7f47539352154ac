"""What the acceptance tests leave out through upstreams, and that the documentation says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.acceptance.routes import GAPS, Gap

ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| `(anthropic|openai)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def test_the_documentation_has_the_same_table() -> None:
    text = (ROOT / "docs" / "upstreams.md").read_text(encoding="utf-8")
    assert _ROW.findall(text) == [(gap.route, gap.apis, gap.what) for gap in GAPS]


@pytest.mark.parametrize("gap", GAPS, ids=lambda gap: gap.what)
def test_what_is_left_out_is_a_test(gap: Gap) -> None:
    for place in gap.tests:
        file, _, name = place.partition("::")
        text = (ROOT / "tests" / "acceptance" / file).read_text(encoding="utf-8")
        assert "pytest.mark.every_route" in text
        assert f"def {name}(" in text
