"""Runs the pages' scripts outside a browser: those that need no document."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway.config import BASE_DIR

_SCRIPTS = BASE_DIR / "gateway" / "static" / "gateway"
_PATIENCE_S = 60


class Scripts:
    """A copy of the scripts that Node takes for the modules that they are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copytree(_SCRIPTS, folder, dirs_exist_ok=True)
        (folder / "package.json").write_text('{"type": "module"}')
        if shutil.which("node") is None:
            if "CI" in os.environ:
                raise RuntimeError("Node is not installed")
            pytest.skip("Node is not installed")

    def run(self, module: str, program: str, **given: Any) -> Any:
        """Return what the body of a function returns that has all that a module exports as `m`.

        `given` are its arguments, by their names.
        """
        source = (
            f"import * as m from './{module}';\n"
            f"const given = JSON.parse(process.argv[2]);\n"
            f"const result = await (async ({{ {', '.join(given)} }}) => {{ {program} }})(given);\n"
            "console.log(JSON.stringify(result ?? null));\n"
        )
        path = self._folder / "run.js"
        path.write_text(source)
        ended = subprocess.run(
            ["node", path.name, json.dumps(given)],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)
