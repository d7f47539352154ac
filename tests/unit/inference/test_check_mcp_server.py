"""The check of an MCP server of the catalogue, on real ones."""

from __future__ import annotations

import sys
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from inference.models import McpServer
from tests.unit.inference.mcp.servers import SERVER

pytestmark = pytest.mark.django_db


def _check(**fields: Any) -> tuple[str, str]:
    """Return what the command prints, and what it warns of."""
    McpServer.objects.create(**({"name": "tools", "enabled": False} | fields))
    output, errors = StringIO(), StringIO()
    call_command("check_mcp_server", "tools", stdout=output, stderr=errors)
    return output.getvalue(), errors.getvalue()


def test_it_lists_the_tools() -> None:
    output, errors = _check(transport="builtin")
    assert [line.split()[0] for line in output.splitlines()] == ["current_time", "calculate"]
    assert "Tell the current date and time." in output
    assert errors == ""


def test_it_names_an_allowed_tool_that_there_is_not() -> None:
    command = [sys.executable, str(SERVER)]
    output, errors = _check(command=command, allowed_tools=["echo", "gone"])
    assert [line.split()[0] for line in output.splitlines()] == ["echo"]
    assert "'gone'" in errors
    assert "Not in allowed_tools: fail, " in errors


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"command": ["/nowhere/at/all"]}, "tools cannot be used: .*/nowhere/at/all"),
        (
            {"transport": "builtin", "secrets": {"KEY": "${env:SURELY_NOT_SET}"}},
            "the environment has no SURELY_NOT_SET",
        ),
        ({"transport": "http", "url": "http://127.0.0.1:9/mcp"}, "tools cannot be used: "),
    ],
)
def test_it_says_what_is_wrong(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        _check(**fields)


def test_it_knows_no_server_of_another_name() -> None:
    with pytest.raises(CommandError, match="no MCP server named 'tools'"):
        call_command("check_mcp_server", "tools")
