"""The MCP server that ships with Tandem: the current time, and arithmetic.

Run it with `python -m inference.mcp.builtin`; it speaks over its standard streams.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

server = MCPServer("builtin", version="1")

Number = int | float

# Small models, made to call, may never come to the end of a text that has none.
_MAX_CHARACTERS = 200
_MAX_ZONE_CHARACTERS = 40
_MAX_BITS = 10_000
_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Number], Number]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


@server.tool(structured_output=False)
def current_time(
    timezone: Annotated[
        str,
        Field(description="IANA name, such as Europe/Berlin", max_length=_MAX_ZONE_CHARACTERS),
    ] = "UTC",
) -> str:
    """Tell the current date and time."""
    now = datetime.now(_zone(timezone))
    return f"{now.isoformat(timespec='seconds')} ({now:%A}, {timezone})"


@server.tool(structured_output=False)
def calculate(
    expression: Annotated[
        str, Field(description="Such as (12.5 + 3) * 4 or 2 ** 10", max_length=_MAX_CHARACTERS)
    ],
) -> str:
    """Work out an arithmetic expression: + - * / // % ** and parentheses."""
    return str(evaluate(expression))


def _zone(name: str) -> tzinfo:
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ToolError(f"unknown timezone: {name}") from None


def evaluate(expression: str) -> Number:
    """Return the value of an arithmetic expression. Raises `ToolError` saying what is wrong."""
    if len(expression) > _MAX_CHARACTERS:
        raise ToolError(f"longer than {_MAX_CHARACTERS} characters")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except SyntaxError:
        raise ToolError("not an arithmetic expression") from None
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except (OverflowError, RecursionError, MemoryError):
        raise ToolError("too large") from None


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_value(left), _value(right)))
    raise ToolError("only numbers, + - * / // % ** and parentheses are understood")


def _power(base: Number, exponent: Number) -> Number:
    whole = isinstance(base, int) and isinstance(exponent, int)
    # Only whole numbers grow without an end.
    if whole and abs(base) > 1 and exponent * math.log2(abs(base)) > _MAX_BITS:
        raise ToolError("too large")
    result = base**exponent
    if isinstance(result, complex):
        raise ToolError("not a real number")
    return result


def _bounded(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise ToolError("too large")
    return value


if __name__ == "__main__":
    server.run("stdio")
