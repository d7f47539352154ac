"""What a server takes, and what it refuses and how: addresses, fields, blocks and errors."""

from __future__ import annotations

import base64
from typing import Any

from tests.comparison.server import (
    QUESTION,
    Check,
    Lacks,
    Server,
    answered,
    expect,
    refused,
    seen,
)

# A red dot. No server here has a model that sees.
_PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
        "53de0000000c49444154789c63f8cfc000000301010018dd8db00000000049454e44ae426082"
    )
).decode()
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": _PNG},
}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}


def takes(statement: str, **fields: Any) -> Check:
    """Return the check that a request is answered."""

    def run(server: Server) -> None:
        server.message(**fields)

    return Check(statement, run)


def refuses(statement: str, words: str, **fields: Any) -> Check:
    """Return the check that a request gets 400 with these words, streamed or not."""

    def run(server: Server) -> None:
        for stream in (False, True):
            refused(server.post(stream=stream, **fields), 400, "invalid_request_error", words)

    return Check(statement, run)


def turn(*blocks: dict[str, Any], role: str = "user") -> dict[str, Any]:
    """Return a turn of blocks."""
    return {"role": role, "content": list(blocks)}


def text(value: str, **fields: Any) -> dict[str, Any]:
    """Return a text block."""
    return {"type": "text", "text": value, **fields}


def call(call_id: str) -> dict[str, Any]:
    """Return a block that calls a tool."""
    return {"type": "tool_use", "id": call_id, "name": "look_up", "input": {"country": "France"}}


def result(call_id: str, content: Any = "Paris", **fields: Any) -> dict[str, Any]:
    """Return a block with a call's result."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def called(*results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a conversation in which a tool was called, with these results."""
    return [turn(text(QUESTION)), turn(call("toolu_1"), role="assistant"), turn(*results)]


def takes_either_header(server: Server) -> None:
    """Check that the key counts in both headers."""
    key = server.http.headers["authorization"].removeprefix("Bearer ")
    headers = {"x-api-key": key, "authorization": ""}
    response = server.http.get("/v1/models", headers=headers)
    expect(response.status_code == 200, seen(response))


def refuses_a_wrong_key(server: Server) -> None:
    """Check that the error is Anthropic's."""
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        response = server.http.post(path, json={}, headers={"authorization": "Bearer wrong"})
        refused(response, 401, "authentication_error", "")


def answers_at_every_base_url(server: Server) -> None:
    """Check the forms that people type by mistake."""
    for path in ("/v1/v1/messages", "/anthropic/v1/messages", "/messages"):
        answered(server.post(path))


def finds_models_in_any_case(server: Server) -> None:
    """Check a model's name in capitals."""
    server.message(model=server.model.upper())


def lists_models(server: Server) -> None:
    """Check what Anthropic's SDKs require of the list and its rows."""
    listed = answered(server.http.get("/v1/models", headers={"anthropic-version": "2023-06-01"}))
    wanted = {"id", "type", "display_name", "created_at", "lifecycle"}
    missing = sorted({"has_more", "first_id", "last_id"} - listed.keys())
    missing += sorted(wanted - listed["data"][0].keys())
    expect(not missing, f"without {', '.join(f'`{name}`' for name in missing)}")


def shows_a_model(server: Server) -> None:
    """Check one model, and one that there is not."""
    answered(server.http.get(f"/v1/models/{server.model}"))
    refused(server.http.get("/v1/models/x"), 404, "not_found_error", "model 'x' not found")


def knows_no_other_model(server: Server) -> None:
    """Check the error of an unknown model on both routes."""
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        refused(server.post(path, model="x"), 404, "not_found_error", "model 'x' not found")


def tells_what_it_ignored(server: Server) -> None:
    """Check that an unknown field has no effect, and that the answer says so."""
    response = server.post(container="c", zeal=1)
    answered(response)
    listed = any("container" in value for value in response.headers.values())
    expect(listed, "ignored without a word")


def fills_the_cache(server: Server) -> None:
    """Check that no token is made."""
    message = server.message(max_tokens=0, **EPHEMERAL)
    expect(message["usage"]["output_tokens"] == 0, "tokens were made")


def names_an_over_long_prompt(server: Server) -> None:
    """Check the words by which clients know that they must shorten the conversation."""
    turns = [turn(text("word " * 20_000))]
    for stream in (False, True):
        response = server.post(messages=turns, stream=stream)
        refused(response, 400, "invalid_request_error", "prompt is too long: ")


def replaces_images(server: Server) -> None:
    """Check that a model without vision is told of an image, also of a tool's."""
    for turns in ([turn(text(QUESTION), IMAGE)], called(result("toolu_1", [IMAGE]))):
        server.message(messages=turns)


def shows_errors_to_the_model(server: Server) -> None:
    """Check that a failed call's result has more tokens: the word that says so."""
    plain = server.count(messages=called(result("toolu_1")))
    failed = server.count(messages=called(result("toolu_1", is_error=True)))
    expect(failed > plain, "the model is told the same as of a success")


def has_both_envelopes(server: Server) -> None:
    """Check the keys of an error's body."""
    body = server.post(max_tokens=None).json()
    wanted = ("type", "error", "request_id", "status_code", "detail")
    missing = [f"`{name}`" for name in wanted if name not in body]
    expect(not missing, f"without {', '.join(missing)}")


def names_every_request(server: Server) -> None:
    """Check that the header is there, on errors too."""
    for response in (server.post(), server.post(max_tokens=None)):
        expect("request-id" in response.headers, "no such header")


def refuses_what_is_no_json(server: Server) -> None:
    """Check bodies that are no object."""
    for content in (b"{", b"[]"):
        response = server.http.post(
            "/v1/messages", content=content, headers={"content-type": "application/json"}
        )
        refused(response, 400, "invalid_request_error", "")


def answers_wrong_paths_in_shape(server: Server) -> None:
    """Check the error of a path and of a method that there is not."""
    refused(server.http.get("/v1/nothing"), 404, "not_found_error", "")
    response = server.http.get("/v1/messages")
    if response.status_code != 405 or "error" not in response.json():
        raise Lacks(seen(response))


_THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
_REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}
_DOCUMENT = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "words"},
}

CHECKS = (
    Check("The key is taken from `x-api-key` too", takes_either_header),
    Check("A wrong key: 401 `authentication_error`", refuses_a_wrong_key),
    Check(
        "Base URLs that end in `/v1` or `/anthropic`, or have no version",
        answers_at_every_base_url,
    ),
    Check("A model's id is matched whatever its case", finds_models_in_any_case),
    Check("`GET /v1/models` has the rows and pages of Anthropic's", lists_models),
    Check("`GET /v1/models/{id}`; 404 `not_found_error` if there is none", shows_a_model),
    Check("Unknown model: 404 `not_found_error`, `model 'x' not found`", knows_no_other_model),
    refuses(
        "A missing field is named: `max_tokens: Field required`",
        "max_tokens: Field required",
        max_tokens=None,
    ),
    refuses(
        "So is a nested one: `messages.0.content: Field required`",
        "messages.0.content: Field required",
        messages=[{"role": "user"}],
    ),
    Check("Fields without effect are ignored, and the answer says which", tells_what_it_ignored),
    takes(
        "`metadata`, `service_tier`, `speed`, `context_management`, `cache_control`",
        metadata={"user_id": "u"},
        service_tier="auto",
        speed="standard",
        context_management={"edits": []},
        system=[text("Be brief.", **EPHEMERAL)],
        **EPHEMERAL,
    ),
    takes("`temperature`, `top_p`, `top_k`", temperature=0.5, top_p=0.9, top_k=5),
    takes("Five stop sequences", stop_sequences=list("VWXYZ")),
    refuses(
        "An empty stop sequence is refused",
        "each stop sequence must be non-empty",
        stop_sequences=[""],
    ),
    Check("`max_tokens: 0` fills the cache up to a mark", fills_the_cache),
    refuses("`max_tokens: 0` without a mark is refused", "max_tokens: ", max_tokens=0),
    takes(
        "A `budget_tokens` below 1,024",
        thinking={"type": "enabled", "budget_tokens": 10},
    ),
    takes("`thinking.type` `adaptive`", thinking={"type": "adaptive", "display": "omitted"}),
    takes("`thinking.type` `between_tools`", thinking={"type": "between_tools"}),
    takes(
        "A `system` message in mid-conversation",
        messages=[turn(text(QUESTION)), turn(text("Be brief."), role="system")],
    ),
    refuses(
        "An empty text block is refused by its path",
        "messages.0.content.1.text: text content blocks must be non-empty",
        messages=[turn(text(QUESTION), text(""))],
    ),
    refuses(
        "`document` is refused by its path",
        "messages.0.content.1: Unsupported content block type: 'document'",
        messages=[turn(text(QUESTION), _DOCUMENT)],
    ),
    takes(
        "`thinking` and `redacted_thinking` of earlier turns",
        messages=[
            turn(text(QUESTION)),
            turn(_THOUGHT, _REDACTED, text("Paris."), role="assistant"),
            turn(text("Really?")),
        ],
    ),
    Check("An image is replaced by a note where the model has no vision", replaces_images),
    refuses(
        "A call without its result is refused, its id named",
        "toolu_1",
        messages=[*called()[:2], turn(text("Well?"))],
    ),
    refuses(
        "A result without its call is refused, its id named",
        "toolu_stray",
        messages=called(result("toolu_1"), result("toolu_stray")),
    ),
    Check("`is_error` is told to the model", shows_errors_to_the_model),
    Check("An over-long prompt: 400 `prompt is too long: ...`", names_an_over_long_prompt),
    refuses(
        "A prompt that fits, but not with `max_tokens`: 400 `... exceed context limit ...`",
        "exceed context limit",
        max_tokens=1_000_000,
    ),
    Check("Errors have Anthropic's envelope, and the keys of sference's", has_both_envelopes),
    Check("Every answer has a `request-id`", names_every_request),
    Check("A body that is no JSON object: 400 `invalid_request_error`", refuses_what_is_no_json),
    Check("Unknown paths and methods have Anthropic's envelope", answers_wrong_paths_in_shape),
)
