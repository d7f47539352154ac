"""Requests that work as they stand, against the model that Tandem starts with."""

from __future__ import annotations

from typing import Any

MODEL = "smollm2-135m-instruct"
_QUESTION = {"role": "user", "content": "What is the capital of France?"}
_TEXT = {"model": MODEL, "max_tokens": 32, "messages": [_QUESTION]}

_WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
    },
}
_CALL = {
    "type": "tool_use",
    "id": "toolu_01",
    "name": "get_weather",
    "input": {"city": "Paris"},
}
_RESULT = {"type": "tool_result", "tool_use_id": "toolu_01", "content": "18 degrees, clear"}
_DOT = {
    "type": "base64",
    "media_type": "image/png",
    "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg==",
}


def _named(summary: str, **changes: Any) -> dict[str, Any]:
    return {"summary": summary, "value": _TEXT | changes}


MESSAGES = {
    "text": _named("A question"),
    "stream": _named("An answer as it is generated", stream=True),
    "system": _named(
        "A system prompt and sampling",
        system="You answer in one sentence.",
        temperature=0,
        stop_sequences=["\n\n"],
    ),
    "tool": _named(
        "A call that must be made",
        max_tokens=100,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[_WEATHER],
        tool_choice={"type": "tool", "name": "get_weather"},
    ),
    "tool_result": _named(
        "What a call came to",
        messages=[
            {"role": "user", "content": "What is the weather in Paris?"},
            {"role": "assistant", "content": [_CALL]},
            {"role": "user", "content": [_RESULT]},
        ],
        tools=[_WEATHER],
    ),
    "image": _named(
        "An image",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image", "source": _DOT},
                ],
            }
        ],
    ),
    "structured_output": _named(
        "An answer that matches a schema",
        max_tokens=100,
        output_config={
            "format": {
                "type": "json_schema",
                "schema": {
                    "type": "object",
                    "properties": {"capital": {"type": "string", "maxLength": 20}},
                    "required": ["capital"],
                    "additionalProperties": False,
                },
            }
        },
    ),
    "thinking": _named(
        "Thinking, of models that can", thinking={"type": "enabled", "budget_tokens": 16}
    ),
    "caching": _named(
        "A prefix to cache",
        system=[
            {
                "type": "text",
                "text": "You answer in one sentence.",
                "cache_control": {"type": "ephemeral"},
            }
        ],
    ),
}
COUNT = {
    "text": {
        "summary": "The length of a question",
        "value": {"model": MODEL, "messages": [_QUESTION]},
    }
}
