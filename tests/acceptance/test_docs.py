"""The examples in the documentation work as they stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.models import Scope
from tests.acceptance.stack import ROOT, Gateway, Stack, ending
from tests.acceptance.teams import make_member

pytestmark = [pytest.mark.acceptance, pytest.mark.engine]

_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_EXAMPLES = [
    pytest.param(language, code, id=f"{page.relative_to(ROOT)}-{number}")
    for page in _PAGES
    for number, (language, code) in enumerate(_BLOCK.findall(page.read_text("utf-8")), start=1)
]


@pytest.fixture(scope="module")
def keys(stack: Stack) -> dict[str, str]:
    """Return the variables that readers are told to put their keys into."""
    admin = make_member(stack, key={"scopes": [Scope.READ, Scope.ADMIN]})
    return {"TANDEM_API_KEY": stack.key, "TANDEM_ADMIN_KEY": admin.key}


@pytest.fixture(scope="module", autouse=True)
def clerk(stack: Stack) -> Iterator[None]:
    """Have somebody end batches."""
    with ending(stack.start_clerk()):
        yield


def test_there_are_examples_to_run() -> None:
    assert {"bash", "python"} == {example.values[0] for example in _EXAMPLES}


@pytest.mark.parametrize(("language", "code"), _EXAMPLES)
def test_an_example_works_as_it_stands(
    keys: dict[str, str], gateway: Gateway, real_model: str, language: str, code: str
) -> None:
    if language == "bash" and shutil.which("curl") is None:
        if "CI" in os.environ:
            pytest.fail("curl is missing")
        pytest.skip("curl is not installed")
    code = code.replace("http://localhost:8080", gateway.url)
    command = [sys.executable, "-c", code]
    if language == "bash":
        # Like a reader's shell, but an HTTP error fails and nothing but the answer is printed.
        command = ["bash", "-euc", code.replace("curl ", "curl --fail-with-body --silent ")]
    done = subprocess.run(
        command,
        env=os.environ | keys,
        cwd=Path("/"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
