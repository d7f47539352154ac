"""Holds objects and events of the Responses API against the types of OpenAI's own SDK."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from openai.types.responses import (
    Response,
    ResponseInputItem,
    ResponseOutputItem,
    ResponseStreamEvent,
)
from pydantic import BaseModel, TypeAdapter


def _members(union: Any) -> dict[str, type[BaseModel]]:
    members: tuple[type[BaseModel], ...] = get_args(get_args(union)[0])
    found: dict[str, type[BaseModel]] = {}
    for member in members:
        field = member.model_fields.get("type")
        for name in get_args(field.annotation) if field else ():
            found.setdefault(name, member)
    return found


_EVENTS = _members(ResponseStreamEvent)
_OUTPUT_ITEMS = _members(ResponseOutputItem)
# Fields that the API's specification has and the SDK's types do not.
_BEYOND = {"response.function_call_arguments.done": {"name"}}
_INPUT_ITEMS: TypeAdapter[Any] = TypeAdapter(ResponseInputItem)


def check_event(event: dict[str, Any]) -> Any:
    """Return the event as the SDK's type. Nothing may be missing, wrong or unknown."""
    kind = _EVENTS[event["type"]]
    _check_fields(kind, event, more=_BEYOND.get(event["type"]))
    if "response" in event:
        check_response(event["response"])
    if "item" in event:
        check_output_item(event["item"])
    return kind.model_validate(event, strict=True)


def check_response(response: dict[str, Any]) -> Response:
    """Return the response as the SDK's type. Nothing may be missing, wrong or unknown."""
    _check_fields(Response, response, more={"store"})
    for item in response["output"]:
        check_output_item(item)
    # The SDK's time is a float and JSON has one kind of number.
    times = {"created_at", "completed_at"}
    floats = {name: float(response[name]) for name in times if response[name] is not None}
    return Response.model_validate(response | floats, strict=True)


def check_output_item(item: dict[str, Any]) -> Any:
    """Return an item of an answer as the SDK's type."""
    kind = _OUTPUT_ITEMS[item["type"]]
    _check_fields(kind, item)
    return kind.model_validate(item, strict=True)


def check_input_item(item: dict[str, Any]) -> Any:
    """Return an item as the SDK's type of what can be sent."""
    return _INPUT_ITEMS.validate_python(item)


def _check_fields(
    kind: type[BaseModel], fields: Iterable[str], more: set[str] | None = None
) -> None:
    known = set(kind.model_fields) | {field.alias for field in kind.model_fields.values()}
    unknown = set(fields) - known - (more or set())
    assert not unknown, f"{kind.__name__} has no {unknown}"
