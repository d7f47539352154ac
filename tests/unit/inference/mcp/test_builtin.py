"""The server that ships: what it works out, and what it refuses."""

from __future__ import annotations

from datetime import datetime

import pytest
from mcp.server.mcpserver.exceptions import ToolError

from inference.mcp.builtin import current_time, evaluate, server


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        (" (1 + 2) * 3 ", 9),
        ("-2 ** 2", -4),
        ("7 // 2 + 7 % 2", 4),
        ("1 / 4", 0.25),
        ("1e3", 1000.0),
        ("+5", 5),
        ("2 ** 0.5 * 2 ** 0.5", 2.0000000000000004),
        ("2 ** 1000 % 10", 6),
    ],
)
def test_it_works_out(expression: str, value: float) -> None:
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "not an arithmetic expression"),
        ("1 +", "not an arithmetic expression"),
        ("1; 2", "not an arithmetic expression"),
        ("__import__('os')", "only numbers"),
        ("x", "only numbers"),
        ("True + 1", "only numbers"),
        ("'a' * 9", "only numbers"),
        ("1 << 9", "only numbers"),
        ("1 / 0", "division by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("(2 ** 9999) * (2 ** 9999)", "too large"),
        ("1e308 ** 2", "too large"),
        ("(-1) ** 0.5", "not a real number"),
        ("1" * 201, "longer than"),
        ("(" * 99 + "1" + ")" * 99 + "(", "not an arithmetic expression"),
    ],
)
def test_it_refuses(expression: str, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        evaluate(expression)


def test_it_tells_the_time_of_a_zone() -> None:
    told = current_time("Europe/Berlin")
    moment = datetime.fromisoformat(told.split()[0])
    assert moment.utcoffset()
    assert told.endswith(f"({moment:%A}, Europe/Berlin)")


@pytest.mark.parametrize("name", ["Nowhere/Else", "../etc/passwd", ""])
def test_it_knows_no_such_zone(name: str) -> None:
    with pytest.raises(ToolError, match="unknown timezone"):
        current_time(name)


@pytest.mark.parametrize("tool", ["current_time", "calculate"])
async def test_arguments_are_never_endless(tool: str) -> None:
    """A small model that is made to call writes until a schema ends it."""
    tools = {listed.name: listed for listed in await server.list_tools()}
    for schema in tools[tool].input_schema["properties"].values():
        assert schema["maxLength"] <= 200
