"""Fetches an image from a URL that a stranger chose."""

from __future__ import annotations

import asyncio

import httpcore
import httpx

from gateway.images.errors import ImageError
from gateway.images.urls import parse_redirect, parse_url

MAX_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = (
    (b"User-Agent", b"Tandem (fetches an image for a model)"),
    (b"Accept", b"image/jpeg, image/png, image/gif, image/webp"),
    (b"Accept-Encoding", b"identity"),
    (b"Connection", b"close"),
)


class Fetcher:
    """Gets small files over HTTP within limits of bytes, time and concurrency.

    It is httpcore rather than httpx's client on purpose: no proxy, credentials or certificates out
    of the environment, no cookies, no redirect that is not ours, and no decompression.
    """

    def __init__(
        self,
        network: httpcore.AsyncNetworkBackend,
        *,
        max_bytes: int,
        timeout_s: float,
        concurrency: int,
    ) -> None:
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)
        # Nothing is kept alive: each request is a connection that has been checked for it.
        self._pool = httpcore.AsyncConnectionPool(
            # Read once: it is every root certificate. SSL_CERT_FILE adds an operator's own.
            ssl_context=httpcore.default_ssl_context(),
            network_backend=network,
            max_connections=None,
            max_keepalive_connections=0,
        )

    async def fetch(self, url: str) -> bytes:
        """Return the body that the URL leads to. Raises `ImageError`."""
        try:
            async with self._slots, asyncio.timeout(self._timeout_s):
                return await self._follow(parse_url(url))
        except TimeoutError:
            raise ImageError(f"not fetched within {self._timeout_s:g} s") from None
        except httpcore.ConnectError:  # Of TLS: what goes wrong before it is refused by name.
            raise ImageError("no trusted TLS connection to the host") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException):
            raise ImageError("the host did not give a complete HTTP answer") from None

    async def close(self) -> None:
        """Close what is open."""
        await self._pool.aclose()

    async def _follow(self, url: httpx.URL) -> bytes:
        for _ in range(MAX_REDIRECTS + 1):
            body = await self._get(url)
            if isinstance(body, bytes):
                return body
            url = body
        raise ImageError(f"more than {MAX_REDIRECTS} redirects")

    async def _get(self, url: httpx.URL) -> bytes | httpx.URL:
        """Return the body, or where the answer redirects to."""
        # Built from the parsed parts: text that is parsed again could be read otherwise.
        target = httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        headers = [(b"Host", url.netloc), *_HEADERS]
        async with self._pool.stream("GET", target, headers=headers) as answer:
            if answer.status in _REDIRECTS:
                return parse_redirect(url, _header(answer, b"location"))
            if answer.status != 200:
                raise ImageError(f"the host answered with status {answer.status}")
            if _header(answer, b"content-encoding").lower() not in (b"", b"identity"):
                raise ImageError("the host sent a compressed body, which was not asked for")
            return await self._body(answer)

    async def _body(self, answer: httpcore.Response) -> bytes:
        """Return the body; what the host says of its length may stop it early, never later."""
        length = _header(answer, b"content-length")
        if length.isdigit() and int(length) > self._max_bytes:
            raise self._too_large()
        body = bytearray()
        async for chunk in answer.aiter_stream():
            body += chunk
            if len(body) > self._max_bytes:
                raise self._too_large()
        return bytes(body)

    def _too_large(self) -> ImageError:
        return ImageError(f"larger than {self._max_bytes} bytes")


def _header(answer: httpcore.Response, name: bytes) -> bytes:
    return next((value for key, value in answer.headers if key.lower() == name), b"").strip()
