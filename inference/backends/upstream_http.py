"""The way that raw requests take to an upstream, over aiohttp.

aiohttp parses in C. The official clients' HTTP library is written in Python throughout, and with it
a request that should pass through as if nobody was there took a millisecond longer to its first
byte. What they are set to holds here as well: no redirect is followed, no cookie kept, nothing
compressed.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
from yarl import URL

from inference.backends.upstream_client import KEEP_CONNECTIONS_S
from inference.backends.upstream_faults import silent, unreachable
from inference.backends.upstream_limits import Limit, RefusedAnswerError
from inference.connections import reason_of
from inference.upstreams import UpstreamEntry

Headers = Sequence[tuple[str, str]]


class Reply:
    """An answer, of which the head has come.

    Reading it raises `UpstreamError` for all that goes wrong on the way.
    """

    def __init__(
        self, response: aiohttp.ClientResponse, upstream: UpstreamEntry, *, streams: bool
    ) -> None:
        self.status = response.status
        self.headers = response.headers
        self._content = response.content
        self._upstream = upstream
        self._streams = streams

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield its body as it comes."""
        with _explained(self._upstream, streams=self._streams):
            limit = Limit(self.status, self.headers)
            async for piece in self._content.iter_any():
                yield limit.add(piece)

    async def whole(self) -> bytes:
        """Return all of its body."""
        return b"".join([piece async for piece in self.pieces()])


class UpstreamHttp:
    """Connections to one upstream, kept for `KEEP_CONNECTIONS_S`.

    Needs a running event loop. How many requests run at once is the admission's matter.
    """

    def __init__(self, upstream: UpstreamEntry) -> None:
        self._upstream = upstream
        self._base_url = upstream.base_url.rstrip("/")
        self._proxy = _proxy_for(URL(self._base_url))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEP_CONNECTIONS_S, ssl=httpx2.create_ssl_context()
            ),
            # A cookie for one caller's request must not go with another's.
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=upstream.connect_timeout_s,
                sock_read=upstream.read_timeout_s,
            ),
            auto_decompress=False,
        )
        # aiohttp bounds reading only; this is until a body is taken in and its answer begins.
        self._head_timeout_s = upstream.connect_timeout_s + 2 * upstream.read_timeout_s

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, headers: Headers, *, streams: bool
    ) -> AsyncIterator[Reply]:
        """Send a body. Raises `UpstreamError` for all that goes wrong on the way.

        Unless it `streams`, an answer is not there before it is whole.
        """
        # Large bytes would be written in one go, before anything else can be done.
        data = io.BytesIO(body)
        sent = {"data": data, "headers": headers}
        async with await self._head("POST", path, streams=streams, **sent) as response:
            yield Reply(response, self._upstream, streams=streams)

    async def reach(self) -> None:
        """Wait until anybody answers anything. Raises `UpstreamError`."""
        (await self._head("GET", "", streams=True)).close()

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _head(
        self, method: str, path: str, *, streams: bool, **sent: Any
    ) -> aiohttp.ClientResponse:
        with _explained(self._upstream, streams=streams):
            async with asyncio.timeout(self._head_timeout_s):
                return await self._session.request(
                    method,
                    self._base_url + path,
                    allow_redirects=False,
                    proxy=self._proxy,
                    **sent,
                )


@contextmanager
def _explained(upstream: UpstreamEntry, *, streams: bool) -> Iterator[None]:
    """Turn whatever goes wrong on the way into an `UpstreamError`."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError:
        raise unreachable(f"no connection in {upstream.connect_timeout_s:g} s") from None
    except TimeoutError:
        raise silent(upstream.read_timeout_s, down=streams) from None
    except (aiohttp.ClientError, RefusedAnswerError) as error:
        raise unreachable(reason_of(error)) from None


def _proxy_for(url: URL) -> str | None:
    """Return the proxy that the environment names, as the official clients find it.

    aiohttp's own search would send passwords from a .netrc file as well.
    """
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy is None or proxy_bypass(url.host or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
