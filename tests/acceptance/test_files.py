"""`/v1/files` over the wire: OpenAI's client, and plain HTTP for what it hides."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import psutil
import pytest

from tests.acceptance.stack import Gateway, Stack, eventually
from tests.acceptance.teams import make_member

pytestmark = pytest.mark.acceptance

LINE = b'{"custom_id": "a", "method": "POST", "url": "/v1/messages", "body": {}}\n'
DATA = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def api(stack: Stack, gateway: Gateway) -> Iterator[openai.OpenAI]:
    """Return OpenAI's own client, of the shared gateway."""
    url = f"{gateway.url}/v1"
    with openai.OpenAI(base_url=url, api_key=stack.key, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def http(stack: Stack, gateway: Gateway) -> Iterator[httpx.Client]:
    """Return a client that hides nothing."""
    headers = {"authorization": f"Bearer {stack.key}"}
    # What the system may keep for a client that reads slowly is bounded.
    small = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)]
    transport = httpx.HTTPTransport(socket_options=small)
    with httpx.Client(
        base_url=gateway.url, headers=headers, timeout=60, transport=transport
    ) as client:
        yield client


def test_a_file_is_uploaded_listed_read_and_deleted(api: openai.OpenAI) -> None:
    before = int(time.time())
    made = api.files.create(file=("rows.jsonl", LINE * 3), purpose="batch")
    assert made.id.startswith("file-")
    assert made.object == "file"
    assert made.bytes == len(LINE) * 3
    assert made.filename == "rows.jsonl"
    assert made.purpose == "batch"
    assert made.status == "processed"
    assert made.expires_at is not None
    assert made.expires_at - made.created_at == 30 * 24 * 60 * 60
    assert before <= made.created_at <= time.time()
    assert api.files.retrieve(made.id) == made
    assert made in api.files.list(purpose="batch").data
    assert made not in api.files.list(purpose="user_data").data
    assert api.files.content(made.id).read() == LINE * 3
    gone = api.files.delete(made.id)
    assert (gone.id, gone.deleted) == (made.id, True)
    with pytest.raises(openai.NotFoundError):
        api.files.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        api.files.content(made.id)


def test_a_file_can_be_given_an_end(api: openai.OpenAI) -> None:
    made = api.files.create(
        file=("notes.txt", b"x"),
        purpose="user_data",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert made.expires_at == made.created_at + 3600


def test_who_deletes_what_is_listed_gets_to_the_end(api: openai.OpenAI) -> None:
    ids = {api.files.create(file=(f"{n}", b"x"), purpose="user_data").id for n in range(5)}
    seen = set()
    for file in api.files.list(purpose="user_data", limit=2, order="asc"):
        api.files.delete(file.id)
        seen.add(file.id)
    assert ids <= seen
    assert api.files.list(purpose="user_data").data == []


def test_bug_33_another_team_sees_nothing_of_a_file(
    api: openai.OpenAI, stack: Stack, gateway: Gateway
) -> None:
    made = api.files.create(file=("secret", b"x"), purpose="user_data")
    key = make_member(stack).key
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0) as stranger:
        assert stranger.files.list().data == []
        for call in (stranger.files.retrieve, stranger.files.content, stranger.files.delete):
            with pytest.raises(openai.NotFoundError):
                call(made.id)
    assert api.files.content(made.id).read() == b"x"


@pytest.fixture(scope="module")
def data_file(api: openai.OpenAI) -> str:
    """Return the id of a file with `DATA`."""
    return api.files.create(file=("data \u2713.bin", DATA), purpose="user_data").id


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("bytes=0-99", DATA[:100]),
        ("bytes=100-", DATA[100:]),
        ("bytes=-100", DATA[-100:]),
        ("bytes=10000-99999999", DATA[10_000:]),
    ],
)
def test_a_range_is_read(http: httpx.Client, data_file: str, asked: str, expected: bytes) -> None:
    answer = http.get(f"/v1/files/{data_file}/content", headers={"range": asked})
    assert answer.status_code == 206
    assert answer.content == expected
    assert answer.headers["content-range"].endswith(f"/{len(DATA)}")
    assert int(answer.headers["content-length"]) == len(expected)


def test_a_range_beyond_the_end_is_refused(http: httpx.Client, data_file: str) -> None:
    asked = {"range": f"bytes={len(DATA)}-"}
    answer = http.get(f"/v1/files/{data_file}/content", headers=asked)
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(DATA)}"
    assert "none of those" in answer.json()["error"]["message"]


def test_a_download_can_be_resumed_only_of_the_same_bytes(
    http: httpx.Client, data_file: str
) -> None:
    path = f"/v1/files/{data_file}/content"
    whole = http.get(path)
    assert whole.content == DATA
    assert whole.headers["accept-ranges"] == "bytes"
    same = {"range": "bytes=5-", "if-range": whole.headers["etag"]}
    assert http.get(path, headers=same).content == DATA[5:]
    other = http.get(path, headers={"range": "bytes=5-", "if-range": '"other"'})
    assert (other.status_code, other.content) == (200, DATA)


def test_heads_have_no_bodies(http: httpx.Client, data_file: str) -> None:
    head = http.head(f"/v1/files/{data_file}/content")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) == len(DATA)
    assert head.headers["content-disposition"].startswith("attachment; filename")
    # The connection is still good.
    assert http.get(f"/v1/files/{data_file}").json()["bytes"] == len(DATA)


def test_files_are_found_under_every_base_url(http: httpx.Client, data_file: str) -> None:
    for path in (f"/files/{data_file}", f"/v1/v1/files/{data_file}", f"/v1/files/{data_file}/"):
        assert http.get(path).status_code == 200


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.txt", LINE, "Must be .jsonl"),
        ("rows.jsonl", LINE + b"[1]\n", "line 2: not a JSON object"),
        ("rows.jsonl", LINE + LINE + b'{"a": "\xff"}\n', "line 3: not valid UTF-8 (byte 8"),
        ("rows.jsonl", LINE * 50_001, "line 50001: there are more than 50,000"),
        ("rows.jsonl", LINE + b"x" * 20_000_000 + b"\n" + LINE, "line 2: longer than the max"),
    ],
    ids=["name", "no object", "no UTF-8", "too many", "too long"],
)
def test_bug_38_a_bad_upload_is_refused_by_its_line(
    api: openai.OpenAI, name: str, content: bytes, message: str
) -> None:
    before = api.files.list(purpose="batch").data
    with pytest.raises(openai.BadRequestError) as caught:
        api.files.create(file=(name, content), purpose="batch")
    assert message in caught.value.message
    assert caught.value.body["param"] == "file"  # type: ignore[index]
    assert api.files.list(purpose="batch").data == before


def test_what_is_no_form_is_refused(http: httpx.Client) -> None:
    answers = [
        http.post("/v1/files", json={"purpose": "batch"}),
        http.post("/v1/files", data={"purpose": "batch"}),
        http.post("/v1/files", files={"file": ("a.jsonl", LINE)}),
        http.post("/v1/files", files={"purpose": (None, "batch")}),
        http.post("/v1/files", files={"file": ("a", b"x"), "purpose": (None, "nonsense")}),
        http.post(
            "/v1/files",
            content=b"--b\r\ncontent-disposition: form-data; name=file",
            headers={"content-type": "multipart/form-data; boundary=b"},
        ),
    ]
    assert [answer.status_code for answer in answers] == [400] * 6
    messages = [answer.json()["error"]["message"] for answer in answers]
    assert "multipart/form-data" in messages[0]
    assert "multipart/form-data" in messages[1]
    assert messages[2].startswith("purpose: Field required")
    assert messages[3].startswith("file: Field required")
    assert messages[4].startswith("purpose: must be one of")
    assert "ends too early" in messages[5]


def test_files_need_a_key_with_the_scope(stack: Stack, gateway: Gateway) -> None:
    assert httpx.get(f"{gateway.url}/v1/files").status_code == 401
    assert httpx.post(f"{gateway.url}/v1/files", content=b"x").status_code == 401


def big_file(path: Path, size: int) -> Path:
    row = b'{"custom_id": "a", "body": {"x": "%b"}}\n' % (b"y" * 4000)
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(row * 100)
    return path


def test_large_files_go_through_in_little_memory(
    api: openai.OpenAI, gateway: Gateway, stack: Stack, http: httpx.Client, tmp_path: Path
) -> None:
    path = big_file(tmp_path / "big.jsonl", 150 * 1024 * 1024)
    process = psutil.Process(gateway.server.process.pid)
    before = process.memory_info().rss
    peak = Path(f"/proc/{process.pid}/clear_refs")
    peak.write_text("5")  # the peak counts from here
    made = api.files.create(file=path, purpose="batch")
    with api.files.with_streaming_response.content(made.id) as answer:
        size = sum(map(len, answer.iter_bytes(1024 * 1024)))
    assert size == made.bytes == path.stat().st_size
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    assert int(line.split()[1]) * 1024 - before < 40 * 1024 * 1024
    api.files.delete(made.id)
    eventually(
        lambda: not any(made.id[5:] in name.name for name in stored(stack)), "the bytes are gone"
    )


def stored(stack: Stack) -> list[Path]:
    return list((stack.layout.data_dir / "files").rglob("*"))


def test_who_reads_slowly_is_waited_for(
    api: openai.OpenAI, gateway: Gateway, http: httpx.Client, tmp_path: Path
) -> None:
    path = big_file(tmp_path / "big", 80 * 1024 * 1024)
    made = api.files.create(file=path, purpose="user_data")
    process = psutil.Process(gateway.server.process.pid)
    before = process.memory_info().rss
    with http.stream("GET", f"/v1/files/{made.id}/content") as answer:
        pieces = answer.iter_raw(1024)
        next(pieces)
        # Others are answered meanwhile, and nothing piles up.
        for _ in range(20):
            assert api.files.retrieve(made.id).bytes == made.bytes
        assert process.memory_info().rss - before < 20 * 1024 * 1024
        size = 1024 + sum(map(len, pieces))
    assert size == path.stat().st_size


def test_a_reader_who_leaves_harms_nothing(
    api: openai.OpenAI, gateway: Gateway, http: httpx.Client, tmp_path: Path
) -> None:
    path = big_file(tmp_path / "big", 80 * 1024 * 1024)
    made = api.files.create(file=path, purpose="user_data")
    process = psutil.Process(gateway.server.process.pid)

    def is_open() -> bool:
        return any(made.id[5:] in file.path for file in process.open_files())

    with http.stream("GET", f"/v1/files/{made.id}/content") as answer:
        # Held: as soon as nobody has the iterator, the connection is closed.
        pieces = answer.iter_raw(1024)
        next(pieces)
        eventually(is_open, "the file is being sent")
    eventually(lambda: not is_open(), "the file is closed")
    assert json.loads(http.get(f"/v1/files/{made.id}").text)["id"] == made.id
