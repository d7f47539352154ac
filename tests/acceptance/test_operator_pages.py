"""The operator's own pages against the real service, as their scripts use them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import uuid
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.acceptance.client import TIMEOUT_S, Client, body, script
from tests.acceptance.operators import Operator
from tests.acceptance.programs import Program
from tests.acceptance.stack import PATIENCE_S, Gateway, Stack, ending, eventually
from tests.acceptance.teams import Member, make_member, rows, set_price
from tests.acceptance.test_openai_batches import CHAT, chat_row
from tests.scripts import Scripts

pytestmark = pytest.mark.acceptance

_CURL = re.compile(r'<pre id="curl"[^>]*>(.*?)</pre>', re.S)


@pytest.fixture(scope="module", autouse=True)
def _clerk(stack: Stack) -> Iterator[None]:
    """Have somebody record requests and validate batches."""
    with ending(stack.start_clerk()):
        yield


@pytest.fixture(scope="module")
def operator(stack: Stack, gateway: Gateway) -> Iterator[Operator]:
    found = Operator(stack, gateway)
    with closing(found.http):
        yield found


@pytest.fixture(scope="module")
def member(stack: Stack) -> Member:
    return make_member(stack)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


def open_key(operator: Operator, member: Member, purpose: str, page: str) -> dict[str, Any]:
    """Return what a page is told of its key."""
    response = operator.post(
        "/admin/session-keys/open/", page, team=member.team_id, purpose=purpose
    )
    said: dict[str, Any] = response.json()
    return said


def call(gateway: Gateway, key: str, asked: dict[str, Any]) -> httpx.Response:
    headers = {"x-api-key": key}
    return httpx.post(f"{gateway.url}/v1/messages", json=asked, headers=headers, timeout=TIMEOUT_S)


def test_the_playground_s_key_works_at_once_and_no_longer_than_its_page(
    gateway: Gateway, operator: Operator, member: Member, model: str
) -> None:
    page = "/admin/playground/"
    assert f'<option value="{model}"' in operator.page(page)
    said = open_key(operator, member, "PLAYGROUND", page)
    asked = body(model, "Hello", stream=True)
    # As the page does: a gateway may have looked for new keys just before.
    answer = eventually(
        lambda: (found := call(gateway, said["key"], asked)).status_code == 200 and found,
        "the gateway knows the key",
    )
    assert answer
    assert "event: message_stop" in answer.text
    listed = operator.page("/admin/gateway/apikey/?q=Playground+session")
    assert said["prefix"] in listed
    files = httpx.get(f"{gateway.url}/v1/files", headers={"x-api-key": said["key"]})
    assert files.status_code == httpx.codes.FORBIDDEN
    revoked = operator.post("/admin/session-keys/close/", page, id=said["id"]).json()
    assert revoked == {"revoked": True}
    eventually(
        lambda: call(gateway, said["key"], asked).status_code == httpx.codes.UNAUTHORIZED,
        "the key is refused",
    )


def _bodies_with(stack: Stack, marker: str) -> list[dict[str, Any]]:
    """Return what was sent that says so."""
    kept = rows(stack, "SELECT body FROM jobs_requestbody WHERE body IS NOT NULL")
    texts = [zlib.decompress(compressed) for (compressed,) in kept]
    return [json.loads(text) for text in texts if marker.encode() in text]


def _run_python(code: str, environment: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=PATIENCE_S)


def _run_curl(code: str, environment: dict[str, str]) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    subprocess.run(
        ["/bin/sh", "-c", f"set -e\n{code}"], env=environment, check=True, timeout=PATIENCE_S
    )


@pytest.mark.parametrize("language", ["python", "curl", "typescript"])
def test_the_code_that_is_shown_sends_what_the_page_sends(
    request: pytest.FixtureRequest,
    stack: Stack,
    gateway: Gateway,
    model: str,
    scripts: Scripts,
    language: str,
) -> None:
    marker = f"it's {uuid.uuid4()}"
    asked = body(
        model,
        marker,
        stream=True,
        system="Grüße\nan 'alle' $HOME",
        temperature=0.5,
        thinking={"type": "disabled"},
        tools=[
            {"name": "weather", "input_schema": {"type": "object", "additionalProperties": False}}
        ],
    )
    program = "return m.programs(address, body);"
    code = scripts.run("code.js", program, address=gateway.url, body=asked)[language]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TANDEM_API_KEY": stack.key}
    if language == "typescript":
        program_of_sdk: Program = request.getfixturevalue("typescript")
        path = Path(program_of_sdk.folder) / "shown.mjs"
        path.write_text(code)
        subprocess.run(["node", path], env=environment, check=True, timeout=PATIENCE_S)
    else:
        {"python": _run_python, "curl": _run_curl}[language](code, environment)
    sent = eventually(lambda: _bodies_with(stack, marker), "the request is on record")
    assert sent == [asked]


def story(operator: Operator, request_id: str) -> str:
    """Return a request's page once nothing more is expected of it."""

    def look() -> str:
        page = operator.page(f"/admin/requests/?q={request_id}")
        return "" if "data-running" in page or 'id="story"' not in page else page

    return eventually(look, "the request is settled")


def test_a_request_s_page_tells_its_whole_story(
    stack: Stack, gateway: Gateway, operator: Operator
) -> None:
    model = stack.add_model("vendor/Told", tool_recursion_limit=0)
    set_price(stack, model)
    member = make_member(stack)
    with ending(stack.start_worker(model)):
        gateway.wait_for_model(model)
        said = script(thinking="Hm, well.", text="It is <b>noon</b>.")
        client = Client(gateway.url, member.key)
        with client.http:
            answer = client.ask(model, said)
        page = story(operator, answer.headers["request-id"])
    assert 'class="op-status op-good" id="status">completed' in page
    for told in (
        *("admitted", "taken by the engine", "first token", "settled"),
        *("It is <b>noon</b>.", member.team_name, "script: "),
    ):
        assert told in page
    assert "/admin/jobs/ledgerentry/" in page
    raw = operator.http.get(f"/admin/requests/{answer.json()['id'].removeprefix('msg_')}/").text
    assert "<b>noon</b>" not in raw


def test_the_command_on_the_page_asks_again(
    stack: Stack, gateway: Gateway, operator: Operator, client: Client, model: str
) -> None:
    answer = client.ask(model, f"it's {uuid.uuid4()}")
    found = _CURL.search(story(operator, answer.headers["request-id"]))
    assert found is not None
    environment = {"PATH": "/usr/bin:/bin", "TANDEM_API_KEY": stack.key}
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    ended = subprocess.run(
        ["/bin/sh", "-c", found[1]], env=environment, check=True, capture_output=True
    )
    assert json.loads(ended.stdout)["content"] == answer.json()["content"]


def test_a_failure_says_why(operator: Operator, client: Client, model: str) -> None:
    answer = client.ask(model, script(tokens=5, fail_at=2))
    assert answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR
    address = f"/admin/requests/{answer.headers['request-id']}/"

    def look() -> str:
        page = operator.page(address)
        return page if 'op-bad" id="status">failed' in page else ""

    page = eventually(look, "the failure is on record")
    assert "could not serve it" in page
    assert answer.headers["request-id"].removeprefix("req_") in operator.page("/admin/requests/")


def send(gateway: Gateway, key: str, lines: list[bytes], endpoint: str = CHAT) -> httpx.Response:
    """Send a file and make a batch of it, as the page's script does."""
    with httpx.Client(base_url=gateway.url, headers={"x-api-key": key}, timeout=TIMEOUT_S) as api:

        def upload() -> httpx.Response | None:
            answer = api.post(
                "/v1/files",
                data={"purpose": "batch"},
                files={"file": ("rows.jsonl", b"\n".join(lines))},
            )
            return None if answer.status_code == httpx.codes.UNAUTHORIZED else answer

        stored = eventually(upload, "the gateway knows the key")
        assert stored is not None
        if stored.status_code != httpx.codes.OK:
            return stored
        return api.post(
            "/v1/batches",
            json={
                "input_file_id": stored.json()["id"],
                "endpoint": endpoint,
                "completion_window": "24h",
            },
        )


def ended_batch(operator: Operator, name: str) -> str:
    """Return a batch's page once it has ended."""

    def look() -> str:
        page = operator.page(f"/admin/batches/{name}/")
        return "" if "data-running" in page else page

    return eventually(look, "the batch ends")


def lines_of(*found: dict[str, Any]) -> list[bytes]:
    return [json.dumps(row).encode() for row in found]


@pytest.fixture(scope="module")
def batch_key(operator: Operator, member: Member) -> str:
    key: str = open_key(operator, member, "BATCH_UPLOAD", "/admin/batches/new/")["key"]
    return key


def test_a_batch_is_sent_watched_and_taken(
    gateway: Gateway, operator: Operator, batch_key: str, model: str
) -> None:
    sent = lines_of(*(chat_row(f"row-{n}", model) for n in range(3)))
    sent += lines_of(chat_row("bad", model, temperature="hot"))
    made = send(gateway, batch_key, sent).json()
    url = f"ws://127.0.0.1:{gateway.port}/admin/ws/batches/{made['id']}"
    headers = {"cookie": operator.cookie}
    with connect(url, additional_headers=headers, origin=Origin(gateway.url), proxy=None) as socket:
        told = []
        with suppress(ConnectionClosed):
            while True:
                told.append(json.loads(socket.recv(timeout=PATIENCE_S)))
    assert (told[-1]["completed"], told[-1]["failed"]) == (3, 1)
    page = ended_batch(operator, made["id"])
    assert "Rows without an answer" in page
    assert "temperature" in page
    results, errors = (
        [
            json.loads(line)
            for line in operator.http.get(
                f"/admin/batches/{made['id']}/{kind}.jsonl"
            ).text.splitlines()
        ]
        for kind in ("results", "errors")
    )
    assert [line["custom_id"] for line in results] == ["row-0", "row-1", "row-2"]
    assert results[0]["response"]["body"]["object"] == "chat.completion"
    assert [line["custom_id"] for line in errors] == ["bad"]
    (bad,) = set(re.findall(r'/admin/requests/([0-9a-f-]{36})/"', page))
    row = operator.page(f"/admin/requests/{bad}/")
    assert '"temperature": "hot"' in row
    assert f"/admin/batches/{made['id'].removeprefix('batch_')}/" in row


def test_a_line_that_is_no_json_is_told_with_its_number(
    gateway: Gateway, batch_key: str, model: str
) -> None:
    refused = send(gateway, batch_key, [*lines_of(chat_row("a", model)), b"{not json"])
    assert refused.status_code == httpx.codes.BAD_REQUEST
    assert refused.json()["error"]["message"].startswith("line 2: ")


def test_what_is_wrong_with_a_file_is_told_line_by_line(
    gateway: Gateway, operator: Operator, batch_key: str, model: str
) -> None:
    sent = lines_of(chat_row("a", model), chat_row("a", model), chat_row("c", "no/such-model"))
    page = ended_batch(operator, send(gateway, batch_key, sent).json()["id"])
    assert "What is wrong with its file" in page
    for line, code in ((2, "duplicate_custom_id"), (3, "model_not_found")):
        assert re.search(rf'<td class="op-number">{line}</td>.*?{code}', page, re.S)


def test_a_batch_is_cancelled(
    stack: Stack, gateway: Gateway, operator: Operator, batch_key: str
) -> None:
    model = stack.add_model("vendor/Never-up")
    made = send(gateway, batch_key, lines_of(chat_row("a", model))).json()
    address = f"/admin/batches/{made['id']}/"
    eventually(lambda: "In progress" in operator.page(address), "the batch has begun")
    operator.post(f"{address}cancel/")
    assert "Cancelled" in ended_batch(operator, made["id"])


def test_the_first_steps_tick_themselves_off_as_the_service_is_used(
    operator: Operator, client: Client, model: str
) -> None:
    story(operator, client.ask(model, "Hello").headers["request-id"])
    page = operator.page("/admin/start/")
    steps = dict(re.findall(r"<h3>\s*\d\. (.*?)\s*<span class=\"op-status[^>]*>(.*?)</span>", page))
    # Other tests leave models that no engine serves, and that step says so then.
    served = "done" if "no engine is running." not in page else "to do"
    assert steps["An engine that serves it"] == served
    assert {steps[name] for name in ("A model in the catalogue", "A team and a key")} == {"done"}
    assert steps["A first request"] == "done"


def test_the_pages_bring_their_scripts_and_styles_from_here(operator: Operator, model: str) -> None:
    page = operator.http.get("/admin/playground/")
    policy = page.headers["content-security-policy"]
    assert "connect-src 'self'" in policy
    assert "script-src 'self'" in policy
    found = set(re.findall(r'(?:src|href)="(/static/gateway/[^"]+)"', page.text))
    assert len(found) >= 3
    for address in found:
        answer = operator.http.get(address)
        assert answer.status_code == httpx.codes.OK
        kind = answer.headers["content-type"].split(";")[0]
        assert kind in ("text/javascript", "text/css", "image/svg+xml")
