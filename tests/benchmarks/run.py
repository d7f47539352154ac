"""The benchmark: Tandem beside vLLM's own server, and what each part of it costs or saves.

Starts everything it needs, prints a report in Markdown and keeps it in `docs/benchmarks/`.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Protocol

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
django.setup()

from gateway.config import load  # noqa: E402
from tests.acceptance.stack import Stack  # noqa: E402
from tests.benchmarks import (  # noqa: E402
    accounting,
    batches,
    beside_vllm,
    dashboard,
    growth,
    million_rows,
    mix,
    path,
    peers,
    prefix_cache,
    shared_prefix,
    simulate,
    upstreams,
)
from tests.benchmarks.load import ROOT  # noqa: E402
from tests.benchmarks.plots import keep  # noqa: E402
from tests.benchmarks.report import Section, render  # noqa: E402

_REPORT = ROOT / "docs" / "benchmarks" / "latest.md"


class Measure(Protocol):
    """One part of the benchmark."""

    def __call__(self, stack: Stack, *, quick: bool) -> Section:
        """Measure everything of this part on a stack that has no model yet."""


_PARTS: dict[str, Measure] = {
    "vllm": beside_vllm.measure,
    "mix": mix.measure,
    "path": path.measure,
    "peers": peers.measure,
    "accounting": accounting.measure,
    "audit": million_rows.measure,
    "cache": prefix_cache.measure,
    "prefix": shared_prefix.measure,
    "batches": batches.measure,
    "growth": growth.measure,
    "upstreams": upstreams.measure,
    "dashboard": dashboard.measure,
    "simulate": simulate.measure,
}


def main() -> None:
    """Run the parts that were asked for."""
    options = _options()
    # The clients tell of each call otherwise.
    logging.disable(logging.INFO)
    sections = []
    for name in [options.only] if options.only else _PARTS:
        print(f"Measuring: {name}", file=sys.stderr, flush=True)
        folder = Path(tempfile.mkdtemp(prefix="tandem-bench-"))
        sections.append(_measure(_PARTS[name], folder, quick=options.quick))
        # After a failure it stays: the logs in it say why.
        shutil.rmtree(folder)
    report = render(sections)
    print(report)
    if options.quick:
        return
    # What one part prints may be kept by hand, and shows them.
    keep([plot for section in sections for plot in section.plots], _REPORT.parent)
    if not options.only:
        _REPORT.write_text(report, encoding="utf-8")


def _measure(measure: Measure, folder: Path, *, quick: bool) -> Section:
    """Run one part on a Tandem of its own, which has the models of this install."""
    models = load().DATA_DIR / "models"
    models.mkdir(parents=True, exist_ok=True)
    (folder / "models").symlink_to(models)
    with Stack(folder) as stack:
        return measure(stack, quick=quick)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(_PARTS), help="run one part")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; the report is not kept")
    return parser.parse_args()


if __name__ == "__main__":
    main()
