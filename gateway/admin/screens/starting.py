"""The commands that start an engine, for whoever reads which model has none."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

PYTHON = ".venv/bin/python"
_SHOWN = 10


def starting(models: Sequence[str]) -> str:
    """Return the commands for these models, or for the first of many; empty if there are none."""
    if not models:
        return ""
    lines = [
        "# On one host: stop serve and start it again. It starts those of all enabled models.",
        f"{PYTHON} manage.py serve",
        "# Or, beside what runs, a worker on the host that has the model's weights.",
    ]
    lines += [
        f"{_worker(model)} {PYTHON} -m celery -A jobs worker -P threads -c 2"
        f" -Q {shlex.quote(f'engine.{model}')}"
        for model in models[:_SHOWN]
    ]
    if len(models) > _SHOWN:
        lines.append(f"# And {len(models) - _SHOWN} more, in the same way.")
    return "\n".join(lines)


def _worker(model: str) -> str:
    return f"ENGINE_MODELS={shlex.quote(model)}"
