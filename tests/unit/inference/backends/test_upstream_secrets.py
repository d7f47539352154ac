"""What upstreams say has no secrets in it any more."""

from __future__ import annotations

import json
import uuid

import msgspec
import pytest

from inference.backends.upstream_secrets import MAX_MESSAGE_CHARS, redacted, redactor_of, told
from inference.errors import ErrorCode
from inference.events import Event, Failed, RawAnswer, RawFrame, TextDelta
from inference.redaction import Redactor
from inference.request import GenerationRequest, RawRequest, Sampling
from inference.secret_references import Secrets

KEY = "sk-planted-of-the-upstream"
TOKEN = "sk-planted-of-the-caller"


def raw_request(body: bytes) -> GenerationRequest:
    return GenerationRequest(
        id=str(uuid.uuid4()),
        model="far",
        messages=(),
        sampling=Sampling(max_tokens=1),
        deadline_s=0,
        raw=RawRequest(path="/v1/messages", body=body),
    )


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            RawFrame(f"data: {KEY}\n\n".encode(), last=True),
            RawFrame(b"data: [secret]\n\n", last=True),
        ),
        (
            RawAnswer(body=KEY.encode(), status=401, headers=(("request-id", f"r-{KEY}"),)),
            RawAnswer(body=b"[secret]", status=401, headers=(("request-id", "r-[secret]"),)),
        ),
        (
            Failed(
                code=ErrorCode.UNAVAILABLE,
                message=f"no {KEY}",
                answer=RawAnswer(body=KEY.encode(), status=500),
            ),
            Failed(
                code=ErrorCode.UNAVAILABLE,
                message="no [secret]",
                answer=RawAnswer(body=b"[secret]", status=500),
            ),
        ),
        (TextDelta("Hi."), TextDelta("Hi.")),
    ],
)
def test_errors_and_what_travels_as_it_is_are_told_without(event: Event, expected: Event) -> None:
    assert redacted(event, Redactor([KEY])) == expected


def test_a_long_message_is_cut_where_no_half_of_a_secret_is_left() -> None:
    message = told("x" * (MAX_MESSAGE_CHARS - 10) + KEY * 3, Redactor([KEY]))

    assert len(message) == MAX_MESSAGE_CHARS
    assert "sk-" not in message


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_tokens_that_a_request_brings_are_hidden_with_the_key(
    monkeypatch: pytest.MonkeyPatch, mark: bytes
) -> None:
    monkeypatch.setenv("THEIR_API_KEY", KEY)
    servers = [{"authorization_token": TOKEN}, {"authorization_token": None}, 1]
    body = mark + json.dumps({"mcp_servers": servers}).encode()
    redactor = redactor_of(raw_request(body), Secrets({"key": "${env:THEIR_API_KEY}"}))

    assert redactor.text(f"{KEY} and {TOKEN}") == "[secret] and [secret]"


@pytest.mark.parametrize("servers", [None, {}, "x", [[]]])
def test_whatever_is_in_their_place_does_no_harm(servers: object) -> None:
    body = msgspec.json.encode({"mcp_servers": servers})

    assert redactor_of(raw_request(body), Secrets({})).text(TOKEN) == TOKEN
