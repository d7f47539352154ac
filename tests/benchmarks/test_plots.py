"""Plots: what they show, that they are small, and how a report shows them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.benchmarks.plots import Bars, Lines, Plot, bars, keep, line_plot
from tests.benchmarks.report import Section, render
from tests.benchmarks.rounds import Spread

_MOST_BYTES = 30_000


def _texts(plot: Plot) -> list[str]:
    tree = ElementTree.fromstring(plot.svg)  # noqa: S314 (drawn just now)
    return [
        "".join(each.itertext()).strip() for each in tree.iter("{http://www.w3.org/2000/svg}text")
    ]


def test_lines_show_their_names_and_the_places_that_were_measured() -> None:
    series: Lines = {
        "p50": [(1, 0.5), (8, 1.0), (512, 40.0)],
        "p99": [(1, Spread(0.7, 0.6, 0.9)), (8, Spread(2, 1, 3)), (512, Spread(90, 80, 1200))],
    }

    plot = line_plot("Delay over streams", "streams", "ms", series, log_x=True)

    shown = _texts(plot)
    assert {"Delay over streams", "streams", "ms", "p50", "p99", "1", "8", "512"} <= set(shown)
    assert len(plot.svg.encode()) < _MOST_BYTES


def test_a_range_is_drawn_only_where_there_is_one() -> None:
    one = line_plot("One", "x", "y", {"a": [(0, 1.0), (1, 2.0)]})
    some = line_plot("One", "x", "y", {"a": [(0, Spread(1, 0, 2)), (1, Spread(2, 2, 2))]})

    assert "FillBetweenPolyCollection" not in one.svg
    assert "FillBetweenPolyCollection" in some.svg


def test_a_logarithmic_axis_says_plain_numbers() -> None:
    points = [(float(x), float(x) ** 2) for x in range(1, 200)]

    plot = line_plot("Growth", "x", "y", {"a": points}, log_x=True, log_y=True)

    assert {"10", "100", "10,000"} <= set(_texts(plot))
    assert len(plot.svg.encode()) < _MOST_BYTES


def test_bars_stand_side_by_side_in_their_groups() -> None:
    series: Bars = {"Tandem": [1.0, Spread(2, 1, 3)], "vLLM": [3.0, 4.0], "other": [1.0, 1.0]}

    plot = bars("Rates", "requests/s", ["1 at once", "8 at once"], series)

    shown = _texts(plot)
    assert {"Rates", "requests/s", "1 at once", "8 at once", *series} <= set(shown)
    lefts = [float(x) for x in re.findall(r'id="patch_\d+">\s*<path d="M ([\d.]+)', plot.svg)]
    assert len(set(lefts)) >= len(series) * 2
    assert len(plot.svg.encode()) < _MOST_BYTES


def test_bars_need_a_value_for_each_group() -> None:
    with pytest.raises(ValueError, match="zip"):
        bars("Rates", "y", ["a", "b"], {"one": [1.0]})


def test_the_same_figures_make_the_same_bytes() -> None:
    series: Lines = {"a": [(1, 2.0), (2, Spread(3, 1, 4))]}

    assert line_plot("Same", "x", "y", series) == line_plot("Same", "x", "y", series)


def test_a_section_shows_its_plots_by_the_names_of_their_files(tmp_path: Path) -> None:
    plot = line_plot("Delay: p50, p99", "x", "y", {"a": [(1, 2.0)]})
    section = Section("Growth", "How.", plots=[plot])

    keep(section.plots, tmp_path)

    (file,) = tmp_path.iterdir()
    assert f"![Delay: p50, p99]({file.name})" in render([section])
    assert file.read_text(encoding="utf-8") == plot.svg


def test_two_plots_cannot_have_the_same_file(tmp_path: Path) -> None:
    plot = Plot("Delay", "<svg/>")

    with pytest.raises(ValueError, match=r"delay\.svg"):
        keep([plot, Plot("delay", "<svg/>")], tmp_path)
