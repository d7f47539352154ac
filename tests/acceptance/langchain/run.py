"""Runs scenarios with LangChain's ChatAnthropic, a line of JSON in and a line of JSON out for each.

A line has a scenario's name and its arguments: the first is what the model is made with, the second
what is said to it. Where Tandem is and with which key is in ANTHROPIC_BASE_URL and
ANTHROPIC_API_KEY.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, Literal

import anthropic
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]
    is_capital: bool


def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """Tell the weather of a city."""
    return f"18 degrees in {city}"


WEATHER = tool(get_weather)


def make(fields: dict[str, Any]) -> Any:
    """Return the model, without retries."""
    url = os.environ["ANTHROPIC_BASE_URL"]
    return ChatAnthropic(**{"base_url": url, "max_retries": 0, "max_tokens": 10_000} | fields)


def told(message: AIMessage) -> dict[str, Any]:
    """Return what matters of a message."""
    return {
        "content": message.content,
        "calls": [{"name": call["name"], "args": call["args"]} for call in message.tool_calls],
        "reason": message.response_metadata["stop_reason"],
        "usage": message.usage_metadata,
    }


def invoke(fields: dict[str, Any], said: str) -> Any:
    """Get a whole answer."""
    return told(make(fields).invoke(said))


def stream(fields: dict[str, Any], said: str) -> Any:
    """Get an answer piece by piece, and add the pieces up."""
    pieces = list(make(fields).stream(said))
    message = pieces[0]
    for piece in pieces[1:]:
        message += piece
    return {"pieces": len(pieces), "message": told(message)}


def use_tools(fields: dict[str, Any], said: str, more: str) -> Any:
    """Make the model call, run what it called, and go on with more to say."""
    model = make(fields)
    conversation = [HumanMessage(said)]
    called = model.bind_tools([WEATHER], tool_choice="get_weather").invoke(conversation)
    results = [WEATHER.invoke(call) for call in called.tool_calls]
    assert all(isinstance(result, ToolMessage) for result in results)
    conversation += [called, *results, HumanMessage(more)]
    answered = model.bind_tools([WEATHER]).invoke(conversation)
    return {
        "called": told(called),
        "results": [result.content for result in results],
        "answered": told(answered),
    }


def parse(fields: dict[str, Any], said: str, method: str) -> Any:
    """Get an answer as an object of a class."""
    city = make(fields).with_structured_output(City, method=method).invoke(said)
    assert isinstance(city, City)
    return city.model_dump()


_SCENARIOS: dict[str, Callable[..., Any]] = {
    "invoke": invoke,
    "stream": stream,
    "use_tools": use_tools,
    "parse": parse,
}


def play(scenario: str, arguments: list[Any]) -> dict[str, Any]:
    """Return what came of a scenario."""
    try:
        return {"value": _SCENARIOS[scenario](*arguments)}
    except anthropic.APIStatusError as error:
        return {
            "error": {
                "name": type(error).__name__,
                "status": error.status_code,
                "type": error.type,
                "message": error.message,
            }
        }


def main() -> None:
    """Run the scenarios."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(play(*json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
