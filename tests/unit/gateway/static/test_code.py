"""The code that the playground shows; that it sends the same is tested with the real service."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import Scripts

ADDRESS = "https://tandem.example"
BODIES: list[dict[str, Any]] = [
    {
        "model": "tiny",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
    },
    {
        "model": "vendor/it's",
        "max_tokens": 1024,
        "system": 'Say "yes" \\ no\nJSON\n$HOME `x` ${y}',
        "messages": [
            {"role": "user", "content": "Grüße, 世界 🎉 \u2028 \u0007"},
            {"role": "assistant", "content": [{"type": "text", "text": "</script>"}]},
            {"role": "user", "content": []},
        ],
        "temperature": 0.7,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [
            {
                "name": "f",
                "input_schema": {
                    "type": "object",
                    "properties": {},
                    "required": [],
                    "additionalProperties": False,
                    "default": None,
                },
            }
        ],
        "stream": True,
    },
]


def programs(scripts: Scripts, body: dict[str, Any]) -> dict[str, str]:
    program = "return m.programs(address, body);"
    found: dict[str, str] = scripts.run("code.js", program, address=ADDRESS, body=body)
    return found


@pytest.mark.parametrize("body", BODIES)
def test_the_command_sends_the_body(scripts: Scripts, body: dict[str, Any], tmp_path: Path) -> None:
    curl = tmp_path / "curl"
    curl.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > arguments\ncat > body\n')
    curl.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TANDEM_API_KEY": "the-key"}
    command = programs(scripts, body)["curl"]
    subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, env=environment, check=True)
    assert json.loads((tmp_path / "body").read_bytes()) == body
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert f"{ADDRESS}/v1/messages" in arguments
    assert "x-api-key: the-key" in arguments


@pytest.mark.parametrize("body", BODIES)
def test_python_has_the_body_for_its_arguments(scripts: Scripts, body: dict[str, Any]) -> None:
    tree = ast.parse(programs(scripts, body)["python"])
    (call,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "stream"
    ]
    said = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    said |= said.pop("extra_body", {})
    assert said == {name: value for name, value in body.items() if name != "stream"}


@pytest.mark.parametrize("body", BODIES)
def test_typescript_has_the_body_for_its_argument(scripts: Scripts, body: dict[str, Any]) -> None:
    text = programs(scripts, body)["typescript"]
    _, _, rest = text.partition("client.messages.stream({\n")
    said, _, _ = rest.partition("});\nstream.on(")
    evaluated = scripts.run("code.js", "return eval(literal);", literal=f"({{{said}}})")
    assert evaluated == {name: value for name, value in body.items() if name != "stream"}
    marked = text.count("@ts-expect-error")
    assert marked == ("temperature" in body)


def test_no_program_has_a_key(scripts: Scripts) -> None:
    for text in programs(scripts, BODIES[0]).values():
        assert "sk-tandem" not in text
        assert "TANDEM_API_KEY" in text
