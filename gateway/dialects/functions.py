"""Functions that a model may call, as OpenAI describes them and as every dialect takes them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, Field

from gateway.dialects.validation import Wire
from inference.arguments import MALFORMED
from inference.request import Tool


def _of_an_object(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object":
        raise ValueError("the schema of a tool's arguments must have the type 'object'")
    return schema


ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
ArgumentsSchema = Annotated[
    dict[str, Any],
    AfterValidator(_of_an_object),
    Field(json_schema_extra={"properties": {"type": {"const": "object"}}}),
]


class Function(Wire):
    """A function in OpenAI's shape. Without `parameters` it takes none."""

    name: ToolName
    description: str | None = None
    parameters: ArgumentsSchema | None = None
    strict: bool | None = None


def arguments_object(written: str) -> str:
    """Return a call's arguments as one JSON object: as they were sent, if they are one.

    Other services' models write what is none, and their clients send it back to be corrected;
    templates decode it.
    """
    if not written.strip():
        return "{}"
    try:
        value = msgspec.json.decode(written)
    except (msgspec.DecodeError, RecursionError):
        value = None
    if isinstance(value, dict):
        return written
    return msgspec.json.encode({MALFORMED: written}).decode()


def function_tool(function: Function) -> Tool:
    """Return the canonical tool."""
    return Tool(
        name=function.name,
        schema={"type": "object", **(function.parameters or {"properties": {}})},
        description=function.description or "",
        strict=bool(function.strict),
    )
