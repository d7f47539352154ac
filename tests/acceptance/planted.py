"""An install full of planted secrets, and everybody who is given one repeating it.

The upstream answers with its key in every error and header, the MCP server with all that it has,
in its results, in its tools' descriptions and on its standard error. Processes log all they can.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.client import script
from tests.acceptance.stack import ROOT, Gateway, Stack, eventually, insert_upstream
from tests.acceptance.teams import Member, make_member
from tests.raw_messages import MESSAGE, START, STREAM
from tests.raw_upstream import EVENT_STREAM, RawUpstream, Reply

# What others spell in their own way is in them, and never among the first characters.
SECRETS = {
    "openai": 'planted-oa/4f1d+"key"==',
    "anthropic": "planted-an/82c6+'key'==",
    "variable": "planted-va/77aa+of\na program",
    "header": "planted-he/d03b+of the web",
    "token": "planted-to/5e9f+of=a.caller",
}
MARKS = {name: secret[:10] for name, secret in SECRETS.items()}
"""What to look for: as it is, however the rest is written, and though the end was cut off."""

LOG_ALL = {"LOG_LEVEL": "DEBUG"}
ENVIRONMENT = {
    "ANTHROPIC_KEY_HERE": SECRETS["anthropic"],
    "PROGRAM_KEY_HERE": SECRETS["variable"],
    "WEB_KEY_HERE": SECRETS["header"],
}
SERVER = str(ROOT / "tests" / "mcp_server.py")
UPSTREAM_MODELS = ("openai", "anthropic")
MODELS = (*UPSTREAM_MODELS, "tooled")
APIS = ("messages", "chat/completions", "responses")
_READ_TIMEOUT_S = 1.0


Upstreams = dict[str, RawUpstream]
"""By the name of the model that each runs."""


def add_models(stack: Stack, upstreams: Upstreams, web: str, key_file: Path) -> None:
    """Put models into the catalogue that are given every secret."""
    key_file.write_text(SECRETS["openai"])
    keys = {"openai": f"${{file:{key_file}}}", "anthropic": "${env:ANTHROPIC_KEY_HERE}"}
    for name, upstream in upstreams.items():
        insert_upstream(
            stack.layout.database_url,
            name,
            base_url=upstream.url + ("/v1" if name == "openai" else ""),
            key=keys[name],
            read_timeout_s=_READ_TIMEOUT_S,
            retries=0,
        )
        stack.add_model(name, backend=name, upstream_id=name, upstream_model="theirs")
    stack.add_model("tooled")
    stack.add_mcp_server(
        "program",
        "tooled",
        command=[sys.executable, SERVER],
        secrets={"PLANTED": "${env:PROGRAM_KEY_HERE}"},
    )
    stack.add_mcp_server(
        "web", "tooled", transport="http", url=web, secrets={"x-key": "Key ${env:WEB_KEY_HERE}"}
    )


class Caller:
    """Calls with a key of its own, and keeps all that it is told. `asked` counts its requests."""

    def __init__(self, stack: Stack, gateway: Gateway, upstreams: Upstreams) -> None:
        self.member: Member = make_member(stack)
        self.heard: list[bytes] = []
        self.asked = 0
        self.http = httpx.Client(
            base_url=gateway.url,
            headers={"authorization": f"Bearer {self.member.key}"},
            timeout=30,
            trust_env=False,
        )
        self._upstreams = upstreams
        self._released = threading.Event()

    def ask(self, api: str, model: str, text: str, *, stream: bool, **fields: Any) -> int:
        """Ask for an answer and return its status."""
        asked: dict[str, Any] = {"model": model, "stream": stream} | fields
        if api == "responses":
            asked |= {"input": text}
        else:
            asked |= {"max_tokens": 1000, "messages": [{"role": "user", "content": text}]}
        self.asked += 1
        return self.send("POST", f"/v1/{api}", asked).status_code

    def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send anything, and keep the answer with its headers."""
        answer = self.http.request(method, path, json=body)
        self.heard.append(repr(answer.headers.raw).encode() + answer.content)
        return answer

    def ask_upstreams(self) -> None:
        """Ask for answers that come, fail, break off and never come, in every API."""
        for model, api, stream in product(UPSTREAM_MODELS, APIS, (False, True)):
            whole = (model, api, stream) == ("anthropic", "messages", False)
            secret = SECRETS[model]
            for status in (400, 401, 429, 500):
                self._have(model, _refusal(secret, status))
                self.ask(api, model, "Hello.", stream=stream)
                # Or it would be left alone.
                self._have(model, _answer(model, secret, whole=whole))
                assert self.ask(api, model, "Hello.", stream=stream) == 200, self.heard[-1]
            self._have(model, Reply(pieces=(_page(secret),), status=502, kind="text/html"))
            self.ask(api, model, "Hello.", stream=stream)
            self._have(model, _broken(model, secret))
            self.ask(api, model, "Hello.", stream=stream)
        for model, api in product(UPSTREAM_MODELS, APIS):
            self._have(model, Reply(pieces=self._never(), kind=EVENT_STREAM))
            self.ask(api, model, "Hello.", stream=True)

    def bring_servers(self, web: str) -> None:
        """Bring MCP servers along, here and to the upstream; some of them cannot be used."""
        said = script(text="", tool_calls=_boasts("brought", "program", "web"), echo_results=True)
        token = SECRETS["token"]
        # The discard port: nobody listens there.
        for url, stream in product((web, "http://127.0.0.1:9/mcp"), (False, True)):
            server = {"type": "url", "name": "brought", "url": url, "authorization_token": token}
            self.ask("messages", "tooled", said, stream=stream, mcp_servers=[server])
            tool = {"type": "mcp", "server_label": "brought", "server_url": url}
            tool |= {"authorization": token, "require_approval": "never"}
            self.ask("responses", "tooled", said, stream=stream, tools=[tool])
            headers = {"headers": {"x-key": token}, "authorization": None}
            self.ask("responses", "tooled", said, stream=stream, tools=[tool | headers])
            for status in (400, 500):
                self._have("anthropic", _refusal(token, status))
                self.ask("messages", "anthropic", "Hello.", stream=stream, mcp_servers=[server])
            self._have("anthropic", _answer("anthropic", token, whole=not stream))
            self.ask("messages", "anthropic", "Hello.", stream=stream, mcp_servers=[server])

    def run_tools(self) -> None:
        """Have the operator's MCP servers tell all that they know, in every API."""
        calls = [
            *_boasts("program", "web"),
            {"name": "program__read_variable", "arguments": ['{"name": "PLANTED"}']},
            {"name": "web__read_header", "arguments": ['{"name": "x-key"}']},
        ]
        said = script(text="", tool_calls=calls, echo_results=True)
        for api, stream in product(APIS, (False, True)):
            assert self.ask(api, "tooled", said, stream=stream) == 200, self.heard[-1]
        told = self.heard[-1].decode()
        # They were given them, or there would be nothing to hide.
        assert told.count("[secret]") >= len(calls), told

    def run_batch(self) -> None:
        """Have rows of a batch fail, each with what it was given."""
        token = SECRETS["token"]
        server = {"type": "url", "name": "brought", "url": "https://mcp.test"}
        row = {
            "model": "anthropic",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "Hello."}],
            "mcp_servers": [server | {"authorization_token": token}],
        }
        for said in (token, SECRETS["anthropic"]):
            self._upstreams["anthropic"].replies.append(_refusal(said, 400))
        rows = [{"custom_id": name, "params": row} for name in "ab"]
        made = self.send("POST", "/v1/messages/batches", {"requests": rows}).json()
        path = f"/v1/messages/batches/{made['id']}"
        eventually(
            lambda: self.send("GET", path).json()["processing_status"] == "ended", "the batch ends"
        )
        assert self.send("GET", f"{path}/results").text.count('"errored"') == len(rows)

    def be_refused(self) -> None:
        """Have the upstreams refuse whatever is asked from now on."""
        for model, upstream in self._upstreams.items():
            upstream.replies.clear()
            upstream.replies.extend([_refusal(SECRETS[model], 401)] * 100)

    def let_go(self) -> None:
        """End what never comes."""
        self._released.set()
        self.http.close()

    def _have(self, model: str, reply: Reply) -> None:
        # One that nobody has asked for must not be taken for the next.
        self._upstreams[model].replies.clear()
        self._upstreams[model].replies.append(reply)

    def _never(self) -> Iterator[bytes]:
        yield b": begun\n\n"
        self._released.wait(60)


def _boasts(*servers: str) -> list[dict[str, Any]]:
    return [{"name": f"{server}__boast"} for server in servers]


def _error(secret: str) -> bytes:
    message = f"Bad key {secret}, {secret!r}, {json.dumps(secret)}"
    return json.dumps({"error": {"type": "authentication_error", "message": message}}).encode()


def _refusal(secret: str, status: int) -> Reply:
    return Reply(pieces=(_error(secret),), status=status, headers=_echo(secret))


def _echo(secret: str) -> dict[str, str]:
    return {"request-id": secret, "x-request-id": secret, "retry-after": "9", "x-key": secret}


def _page(secret: str) -> bytes:
    """Wherever it is cut, half a secret stands there."""
    return b"<html>" + f"{secret} ".encode() * 300


def _answer(model: str, secret: str, *, whole: bool) -> Reply:
    if whole:
        return Reply(pieces=(MESSAGE,), headers=_echo(secret))
    if model == "anthropic":
        return Reply(pieces=STREAM, kind=EVENT_STREAM, headers=_echo(secret))
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}]}
    frame = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    return Reply(pieces=(frame,), kind=EVENT_STREAM, headers=_echo(secret))


def _broken(model: str, secret: str) -> Reply:
    """Return a stream that ends with an error; who wants no stream cannot read it."""
    frame = b"data: " + _error(secret) + b"\n\n"
    if model == "anthropic":
        error = json.loads(_error(secret)) | {"type": "error"}
        frame = START + f"event: error\ndata: {json.dumps(error)}\n\n".encode()
    return Reply(pieces=(frame,), kind=EVENT_STREAM, headers=_echo(secret))
