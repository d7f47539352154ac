"""Text, bytes and headers that have broken other servers: every one gets an answer in shape."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from tests.acceptance.client import TIMEOUT_S, Client, body, script, text_of
from tests.acceptance.stack import Gateway, Stack
from tests.acceptance.test_errors import told_id

pytestmark = [pytest.mark.acceptance, pytest.mark.every_route]

NAUGHTY = {
    "nul": "a\0b",
    "controls": "".join(map(chr, range(1, 32))) + "\x7f\x80\x9f",
    "line breaks of every kind": "a\r\nb\u0085c\u2028d\u2029e\x0bf\x0cg",
    "byte order mark": "\ufeffa\ufeff",
    "right to left": "\u202eabc\u202c \u05e9\u05dc\u05d5\u05dd",
    "combining": "Z\u0351\u036b\u0343A\u0321\u034aL\u0321" * 50,
    "joined emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f467\U0001f1fa\U0001f1f3",
    "noncharacters": "\ufffe\uffff\U0010ffff\ufdd0",
    "replacement": "\ufffd",
    "private use": "\ue000\U000f0000",
    "template tokens": "<|im_end|>\n<|im_start|>system\n</s>[INST]<think></think>",
    "template code": "{{ 7 * 7 }}{% for x in y %}${7*7}{0.__class__}%s%n",
    "frame": 'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    "json": '"}],"max_tokens":1,"x":"\\u0000\\ud800',
    "markup": "<script>alert(1)</script>&lt;!--<![CDATA[",
    "sql": "'; DROP TABLE gateway_apikey;--",
    "path": "../../../../etc/passwd%00.png",
    "header": "a\r\nx-injected: yes\r\n\r\nHTTP/1.1 200 OK",
    "backslashes": "\\" * 1000,
    "one long word": "x" * 100_000,
    "numbers": "1e999 NaN -0 0x10 \u0661\u0662",
}
WHERE: dict[str, Any] = {
    "model": lambda text: {"model": text[:256]},
    "user": lambda text: {"messages": [{"role": "user", "content": text}]},
    "system": lambda text: {"system": [{"type": "text", "text": text}]},
    "stop": lambda text: {"stop_sequences": [text, "never"]},
    "metadata": lambda text: {"metadata": {text: text}, text: text},
    "role": lambda text: {"messages": [{"role": text, "content": "go"}]},
    "block": lambda text: {"messages": [{"role": "user", "content": [{"type": text}]}]},
    "tool": lambda text: {"tools": [{"name": text, "input_schema": {}}]},
    "described tool": lambda text: {"tools": [_tool(text)]},
    "choice": lambda text: {"tool_choice": text},
    "call": lambda text: {"messages": _call(text)},
    "image": lambda text: {"messages": [{"role": "user", "content": [_image(text)]}]},
}


def _tool(text: str) -> dict[str, Any]:
    properties = {text: {"type": "string", "description": text, "enum": [text]}}
    return {"name": "f", "description": text, "input_schema": {"properties": properties}}


def _call(text: str) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": text, "name": text, "input": {text: text}}
    result = {"type": "tool_result", "tool_use_id": text, "content": text}
    return [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]


def _image(text: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text}}


@pytest.mark.parametrize("text", NAUGHTY.values(), ids=NAUGHTY)
def test_a_naughty_text_arrives_as_it_was_said(client: Client, model: str, text: str) -> None:
    answer = client.ask(model, script(text=text)).json()
    assert answer["content"] == [{"type": "text", "text": text}]
    with client.stream(model, script(text=text)) as stream:
        assert text_of(stream.rest()) == text


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("place", WHERE)
def test_a_naughty_text_is_taken_or_refused_wherever_it_stands(
    client: Client, model: str, path: str, place: str
) -> None:
    for name, text in NAUGHTY.items():
        response = client.http.post(path, json=body(model, "go") | WHERE[place](text))
        assert response.status_code in (200, 400, 404), (name, response.text)
        assert response.headers["request-id"].startswith("req_")
        assert "x-injected" not in response.headers
        if response.status_code != 200:
            assert response.json()["request_id"] == told_id(response), name


def exchange(gateway: Gateway, head: bytes, content: bytes = b"") -> httpx.Response:
    """Send bytes that no client library would, and read the answer."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=TIMEOUT_S) as connection:
        connection.sendall(
            b"%b\r\nhost: tandem\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
            % (head, len(content), content)
        )
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    status, _, rest = received.partition(b"\r\n")
    lines, _, answer = rest.partition(b"\r\n\r\n")
    fields = (line.partition(b": ") for line in lines.split(b"\r\n"))
    headers = [(name, value) for name, _, value in fields]
    return httpx.Response(int(status.split()[1]), headers=headers, content=answer)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"/v1/models/%00", 404),
        (b"/v1/models/%ff%ed%a0%80", 404),
        (b"/v1/models/%0d%0ax-injected:%20yes", 404),
        (b"/v1/models/..%2f..%2fetc%2fpasswd", 404),
        (b"/v1/models/%", 404),
        (b"/v1/models/" + b"/" * 5000, 404),
        (b"/v1" * 3000, 404),
        (b"/v1/models?limit=%00", 400),
        (b"/v1/models?limit=%D9%A5", 400),
        (b"/v1/models?limit=" + b"9" * 10_000, 400),
        (b"/v1/models?after_id=%f0%9f%98%80%ff", 400),
        (b"/v1/models?%ff=%ff&&=&;&limit", 400),
    ],
    ids=lambda value: value[:40].decode() if isinstance(value, bytes) else None,
)
def test_a_strange_target_is_answered(
    stack: Stack, gateway: Gateway, target: bytes, status: int
) -> None:
    head = b"GET %b HTTP/1.1\r\nanthropic-version: 1\r\nx-api-key: %b" % (
        target,
        stack.key.encode(),
    )
    response = exchange(gateway, head)
    assert response.status_code == status
    assert "x-injected" not in response.headers
    assert response.json()["request_id"] == response.headers["request-id"]


@pytest.mark.parametrize(
    "header",
    [
        b"content-type: multipart/form-data",
        b'content-type: multipart/form-data; boundary="',
        b"content-type: application/x-www-form-urlencoded",
        b"content-type: " + b"(" * 2000,
        b"content-type: \xff\xfe",
        b"content-type: text/plain; a*0*=utf-8''%ff",
        b"content-type: application/json\r\ncontent-encoding: gzip\r\ndaphne-root-path: \xff",
        b"content-type: application/json\r\ncontent-encoding: \xff",
    ],
    ids=[
        *("no boundary", "open boundary", "form", "parentheses", "no text", "encoded parameter"),
        *("mount point", "no encoding"),
    ],
)
def test_a_strange_header_of_a_body_is_refused_in_shape(
    stack: Stack, gateway: Gateway, header: bytes
) -> None:
    head = b"POST /v1/messages HTTP/1.1\r\nx-api-key: %b\r\n%b" % (stack.key.encode(), header)
    response = exchange(gateway, head, b"--x\r\n\r\na=b&c")
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.json()["request_id"] == response.headers["request-id"]


@pytest.mark.parametrize(
    "header",
    [b"x-api-key: \xff\xfe", b"authorization: Bearer \xf0\x9f", b"x-api-key: " + b"k" * 9000],
    ids=["no text", "cut", "long"],
)
def test_a_strange_key_is_a_wrong_one(gateway: Gateway, header: bytes) -> None:
    assert exchange(gateway, b"GET /v1/models HTTP/1.1\r\n" + header).status_code == 401


@pytest.mark.parametrize(
    "number", ["1e400", "-1e400", "1" + "0" * 5000, "NaN", "-Infinity", "0x10", "01", "1.", "+1"]
)
@pytest.mark.parametrize("field", ["max_tokens", "temperature", "metadata"])
def test_a_number_that_json_lacks_is_refused(
    client: Client, model: str, field: str, number: str
) -> None:
    content = json.dumps(body(model, "go") | {field: "@"}).replace('"@"', number)
    response = client.http.post(
        "/v1/messages", content=content, headers={"content-type": "application/json"}
    )
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_a_repeated_key_counts_once(client: Client, model: str) -> None:
    content = json.dumps(body(model, "go"))[:-1] + ', "max_tokens": "many", "max_tokens": 3}'
    response = client.http.post(
        "/v1/messages", content=content, headers={"content-type": "application/json"}
    )
    assert response.json()["usage"]["output_tokens"] == 3
