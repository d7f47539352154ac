"""One of the servers that are compared, as the checks ask it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx

from tests.acceptance.client import Frame, Stream

QUESTION = "What is the capital of France?"
_SHOWN_CHARS = 120
# How vLLM words what is wrong with a body.
_DETAIL = re.compile(r"'loc': '([^']*)', 'msg': (['\"])(.*?)\2")
# What differs from one run to the next: ids of requests.
_IDS = re.compile(r"(chatcmpl-|call_|toolu_|msg_|req_)[0-9a-zA-Z-]{8,}")


class Lacks(Exception):  # noqa: N818 - it is no error of the check's
    """A server does not do what a check looks for; the message says what was seen instead."""


@dataclass(frozen=True)
class Server:
    """A server that serves one model. `http` sends the key as a bearer token."""

    http: httpx.Client
    model: str

    def post(self, path: str = "/v1/messages", /, **fields: Any) -> httpx.Response:
        """Send a short request, with fields changed; None takes a field out."""
        body = {
            "model": self.model,
            "max_tokens": 16,
            "temperature": 0,
            "messages": [{"role": "user", "content": QUESTION}],
        } | fields
        return self.http.post(
            path, json={name: value for name, value in body.items() if value is not None}
        )

    def message(self, **fields: Any) -> dict[str, Any]:
        """Return the whole answer to a request. Raises `Lacks` if it is refused."""
        return answered(self.post(**fields))

    def stream(self, **fields: Any) -> list[Frame]:
        """Return the frames of an answer. Raises `Lacks` if it is refused."""
        response = self.post(stream=True, **fields)
        if response.status_code != 200:
            raise Lacks(seen(response))
        return Stream(response).rest()

    def count(self, **fields: Any) -> int:
        """Return how many tokens a prompt has. Raises `Lacks` if it is not counted."""
        response = self.post("/v1/messages/count_tokens", **fields | {"max_tokens": None})
        tokens: int = answered(response)["input_tokens"]
        return tokens


class Check(NamedTuple):
    """What the API says, and the requests that show whether a server does so or raise `Lacks`."""

    statement: str
    run: Callable[[Server], None]


def expect(holds: bool, instead: str) -> None:
    """Raise `Lacks` with what was seen instead, unless it holds."""
    if not holds:
        raise Lacks(instead)


def answered(response: httpx.Response) -> dict[str, Any]:
    """Return the object that a successful response has. Raises `Lacks`."""
    if response.status_code != 200:
        raise Lacks(seen(response))
    value: dict[str, Any] = response.json()
    return value


def refused(response: httpx.Response, status: int, kind: str, words: str) -> None:
    """Check the status, the type and the words of an error. Raises `Lacks`."""
    error = _error(response)
    is_right = response.status_code == status and error.get("type") == kind
    if not (is_right and words in str(error.get("message"))):
        raise Lacks(seen(response))


def seen(response: httpx.Response) -> str:
    """Say in a few words what a response is."""
    if response.status_code == 200:
        return "200: answered as if nothing were amiss"
    error = _error(response)
    words = " ".join(str(error.get("message") or response.text).split())
    if detail := _DETAIL.search(words):
        words = f"{detail[1]}: {detail[3]}"
    words = words.partition(" [type=")[0]
    kind = f" `{error['type']}`" if error.get("type") else ""
    return shorten(f"{response.status_code}{kind}: {words}")


def shorten(text: str) -> str:
    """Cut what is long, and take out what is different every time."""
    text = _IDS.sub(r"\1...", text).replace("|", "\\|")
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS].rstrip()} ..."


def _error(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return error
    # Frameworks' own errors.
    return {"message": error or body.get("detail") if isinstance(body, dict) else body}
