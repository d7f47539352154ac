"""Images over real sockets, DNS look-ups and TLS, from servers on loopback that are allowed."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from PIL import Image

from gateway.config import Config
from gateway.image_source import ImageSource
from gateway.images.loader import ImageLoader
from inference.addresses import Address
from inference.errors import TandemError
from inference.request import ImagePart


def photo() -> bytes:
    file = BytesIO()
    Image.linear_gradient("L").convert("RGB").save(file, "JPEG")
    return file.getvalue()


PHOTO = photo()


class Server:
    """An HTTP server that gives one answer for each path, and remembers what was asked."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.answers = {
            "/a.jpg": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PHOTO) + PHOTO,
            "/short": b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + PHOTO[:100],
            "/page": b"HTTP/1.1 200 OK\r\n\r\n<!doctype html><script>alert(1)</script>",
        }
        self.port = 0

    def redirect(self, path: str, location: str) -> None:
        head = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
        self.answers[path] = head.encode()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head)
            writer.write(self.answers.get(head.split(" ")[1], b"HTTP/1.1 404 No\r\n\r\n"))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server()
    async with await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=tls) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server


async def everything_is_here(host: str) -> Sequence[Address]:
    return [ip_address("127.0.0.1")]


@asynccontextmanager
async def loading(resolve: Any = None, **settings: Any) -> AsyncIterator[ImageLoader]:
    loader = ImageLoader(Config(**settings), resolve)
    try:
        yield loader
    finally:
        await loader.close()


async def load(loader: ImageLoader, url: str) -> ImagePart:
    [image] = await loader.load([ImageSource(path="here", url=url)])
    return image


async def complaint(loader: ImageLoader, url: str) -> str:
    with pytest.raises(TandemError) as caught:
        await load(loader, url)
    return caught.value.message


@pytest.mark.parametrize("allowed", ["127.0.0.1", "127.0.0.0/8"])
async def test_it_fetches_from_an_allowed_address(allowed: str) -> None:
    async with serving() as server, loading(IMAGE_HOSTS_ALLOWED=[allowed]) as loader:
        image = await load(loader, f"http://127.0.0.1:{server.port}/a.jpg")
    assert image == ImagePart("image/jpeg", PHOTO)
    assert f"Host: 127.0.0.1:{server.port}\r\n" in server.requests[0]


async def test_it_fetches_from_an_allowed_name_that_the_system_resolves() -> None:
    async with serving() as server, loading(IMAGE_HOSTS_ALLOWED=["localhost"]) as loader:
        image = await load(loader, f"http://localhost:{server.port}/a.jpg")
    assert image.data == PHOTO


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "name.test"])
async def test_nothing_reaches_a_server_that_is_not_allowed(host: str) -> None:
    async with serving() as server, loading(everything_is_here) as loader:
        message = await complaint(loader, f"http://{host}:{server.port}/a.jpg")
    assert message == "here: the host has no public address"
    assert server.requests == []


async def test_a_redirect_from_an_allowed_host_to_another_is_checked_anew() -> None:
    async with (
        serving() as server,
        loading(everything_is_here, IMAGE_HOSTS_ALLOWED=["good.test"]) as loader,
    ):
        server.redirect("/bad", f"http://bad.test:{server.port}/a.jpg")
        server.redirect("/good", "/a.jpg")
        message = await complaint(loader, f"http://good.test:{server.port}/bad")
        assert message == "here: the host has no public address"
        assert len(server.requests) == 1
        assert (await load(loader, f"http://good.test:{server.port}/good")).data == PHOTO


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/missing", "the host answered with status 404"),
        ("/short", "the host did not give a complete HTTP answer"),
        ("/page", "not an image of a supported kind: JPEG, PNG, GIF or WebP"),
    ],
)
async def test_it_says_what_is_wrong_with_an_answer(path: str, reason: str) -> None:
    async with serving() as server, loading(IMAGE_HOSTS_ALLOWED=["127.0.0.1"]) as loader:
        message = await complaint(loader, f"http://127.0.0.1:{server.port}{path}")
    assert message == f"here: {reason}"


async def test_it_limits_the_bytes_of_an_image() -> None:
    settings = {"IMAGE_HOSTS_ALLOWED": ["127.0.0.1"], "IMAGE_MAX_BYTES": 1024}
    async with serving() as server, loading(**settings) as loader:
        message = await complaint(loader, f"http://127.0.0.1:{server.port}/a.jpg")
    assert message == "here: larger than 1024 bytes"


async def test_a_host_that_is_down_is_named_by_nothing_but_its_path() -> None:
    async with serving() as server:
        url = f"http://127.0.0.1:{server.port}/a.jpg"
    async with loading(IMAGE_HOSTS_ALLOWED=["127.0.0.1"]) as loader:
        assert await complaint(loader, url) == "here: could not connect to the host"


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as proxy, serving() as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with loading(IMAGE_HOSTS_ALLOWED=["127.0.0.1"]) as loader:
            await load(loader, f"http://127.0.0.1:{server.port}/a.jpg")
    assert proxy.requests == []


def certificate(folder: Path, name: str) -> Path:
    """Write a self-signed certificate and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file = folder / "server.pem"
    file.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + secret)
    return file


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    return certificate(tmp_path, "images.test")


@pytest.fixture
def tls(pem: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


async def test_tls_is_checked_against_the_name_although_an_address_is_dialled(
    pem: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    named: list[str | None] = []
    tls.sni_callback = lambda _, name, __: named.append(name)
    settings = {"IMAGE_HOSTS_ALLOWED": ["127.0.0.1"]}
    async with serving(tls) as server, loading(everything_is_here, **settings) as loader:
        image = await load(loader, f"https://images.test:{server.port}/a.jpg")
        assert image.data == PHOTO
        message = await complaint(loader, f"https://other.test:{server.port}/a.jpg")
        assert message == "here: no trusted TLS connection to the host"
    assert named == ["images.test", "other.test"]
    assert len(server.requests) == 1


async def test_a_certificate_that_nobody_trusts_is_refused(tls: ssl.SSLContext) -> None:
    settings = {"IMAGE_HOSTS_ALLOWED": ["images.test"]}
    async with serving(tls) as server, loading(everything_is_here, **settings) as loader:
        message = await complaint(loader, f"https://images.test:{server.port}/a.jpg")
    assert message == "here: no trusted TLS connection to the host"
    assert server.requests == []
