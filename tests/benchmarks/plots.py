"""Plots of a report: small SVG files that lie beside it.

They have a white ground of their own, so that they can be read on a dark page too, and each series
has its own mark besides its colour. The same figures always make the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import matplotlib.style
from django.utils.text import slugify
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from tests.benchmarks.rounds import Spread

Value = float | Spread
"""A figure, or its median over rounds, which is drawn with its range."""

Lines = Mapping[str, Sequence[tuple[float, Value]]]
Bars = Mapping[str, Sequence[Value]]

_SIZE_INCHES = (7.2, 4.0)
_MARKS = "osD^v<>PX*"
# What all bars of a group are wide together, of the distance between groups.
_GROUP = 0.8
_MOST_TICKS = 12
# A line through more points goes without marks: they would hide it, and take most of the file.
_MOST_MARKS = 40
_STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    # Text stays text: smaller, and it can be searched and read aloud.
    "svg.fonttype": "none",
    "svg.hashsalt": "tandem",
}


@dataclass(frozen=True)
class Plot:
    """A drawn plot. Its file is named after its title, which no other plot may have."""

    title: str
    svg: str

    @property
    def file_name(self) -> str:
        """The name of its file, beside the report."""
        return f"{slugify(self.title)}.svg"

    def markdown(self) -> str:
        """Return the link that shows it in the report."""
        return f"![{self.title}]({self.file_name})"


def line_plot(
    title: str,
    x_label: str,
    y_label: str,
    series: Lines,
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> Plot:
    """Draw a line through the points of each series, in the order given.

    A logarithmic axis is for figures over 0 that grow by factors.
    """
    with matplotlib.style.context(["petroff10", _STYLE]):
        figure, axes = _canvas(title, x_label, y_label)
        for (name, points), mark in zip(series.items(), cycle(_MARKS), strict=False):
            places = [x for x, _ in points]
            spreads = [_spread(y) for _, y in points]
            (line,) = axes.plot(
                places,
                [s.median for s in spreads],
                marker=mark if len(points) <= _MOST_MARKS else None,
                label=name,
            )
            if any(s.low < s.high for s in spreads):
                low, high = [s.low for s in spreads], [s.high for s in spreads]
                axes.fill_between(places, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        if log_x:
            axes.set_xscale("log")
            _tick(axes, sorted({x for points in series.values() for x, _ in points}))
        if log_y:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        elif axes.dataLim.y0 >= 0:
            axes.set_ylim(bottom=0)
        return _drawn(figure, axes, title, series)


def bars(
    title: str,
    y_label: str,
    groups: Sequence[str],
    series: Bars,
) -> Plot:
    """Draw a bar for each value, side by side in groups; each series has one for each group.

    Raises `ValueError` if a series has more or fewer.
    """
    with matplotlib.style.context(["petroff10", _STYLE]):
        figure, axes = _canvas(title, "", y_label)
        width = _GROUP / len(series)
        for number, (name, values) in enumerate(series.items()):
            spreads = [_spread(value) for value in values]
            shift = (number - (len(series) - 1) / 2) * width
            axes.bar(
                [place + shift for place, _ in zip(range(len(groups)), values, strict=True)],
                [s.median for s in spreads],
                width,
                label=name,
                yerr=[[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
                if any(s.low < s.high for s in spreads)
                else None,
                capsize=3,
            )
        axes.set_xticks(range(len(groups)), groups)
        axes.grid(visible=False, axis="x")
        return _drawn(figure, axes, title, series)


def keep(plots: Iterable[Plot], folder: Path) -> None:
    """Write the plots' files. Raises `ValueError` when two of them have the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    written = set()
    for plot in plots:
        if plot.file_name in written:
            raise ValueError(f"two plots are called {plot.file_name}")
        written.add(plot.file_name)
        (folder / plot.file_name).write_text(plot.svg, encoding="utf-8")


def _canvas(title: str, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained", facecolor="white")
    axes = figure.subplots()
    axes.set_title(title)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    return figure, axes


def _spread(value: Value) -> Spread:
    return value if isinstance(value, Spread) else Spread(value, value, value)


def _tick(axes: Axes, places: Sequence[float]) -> None:
    """Mark the places that were measured, where they are few, not the powers of ten."""
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    if len(places) <= _MOST_TICKS:
        axes.set_xticks(places)
        axes.minorticks_off()


def _drawn(figure: Figure, axes: Axes, title: str, series: Mapping[str, object]) -> Plot:
    if len(series) > 1:
        axes.legend()
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return Plot(title, file.getvalue())
