"""What the service takes from MCP servers over HTTP, and which addresses it looks for them at."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import cache
from ipaddress import ip_address
from typing import NoReturn

import httpx2

from inference.addresses import Address, AddressError, Addresses, read_address

MAX_ANSWER_BYTES = 4 * 1024 * 1024
# A host that answers on none of its first addresses is taken as down.
_MAX_ADDRESSES_TRIED = 3
_EVENT_STREAM = "text/event-stream"
# The SDK says of all errors the same. These are the operator's, or the caller's, to put right.
_REFUSALS = (401, 403)

Resolve = Callable[[str], Awaitable[Sequence[Address]]]


def plain_transport() -> httpx2.AsyncHTTPTransport:
    """Return what sends requests as they are, without the environment's proxies."""
    return httpx2.AsyncHTTPTransport(verify=_trusted())


@cache
def _trusted() -> ssl.SSLContext:
    """Read the root certificates once: there are many, and the event loop waits meanwhile."""
    return httpx2.create_ssl_context()


class LimitedTransport(httpx2.AsyncBaseTransport):
    """Takes no more than `MAX_ANSWER_BYTES` of an answer: the SDK reads JSON whole.

    An event stream goes on as long as its session; the SDK bounds each event.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner
        self.error_status: str | None = None
        """What the last answer had as its status, if that says that something is wrong."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Reading the answer raises `httpx2.ReadError` where it is too large.

        Raises `httpx2.HTTPStatusError` where the server lets nobody in.
        """
        request.headers["accept-encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        self.error_status = _status(response) if response.is_error else None
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.ReadError("the answer is compressed, which was not asked for")
        if not response.headers.get("content-type", "").startswith(_EVENT_STREAM):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _LimitedStream(response.stream)
            if response.status_code in _REFUSALS:
                await _refuse(request, response)
        return response

    async def aclose(self) -> None:
        """Close what is open."""
        await self._inner.aclose()


async def _refuse(request: httpx2.Request, response: httpx2.Response) -> NoReturn:
    """Raise what a server says that lets nobody in, and close its answer."""
    said = (await response.aread()).decode("utf-8", "replace")
    await response.aclose()
    message = f"it answers {_status(response)}: {said}".rstrip(": ")
    raise httpx2.HTTPStatusError(message, request=request, response=response)


def _status(response: httpx2.Response) -> str:
    return f"{response.status_code} {response.reason_phrase}"


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_ANSWER_BYTES
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Connects to addresses that a stranger's URL may lead to, and to no others.

    Each request resolves the host once and is sent to the address that was checked, so that a name
    cannot mean another one in between. TLS is still checked against the name.
    """

    def __init__(self, addresses: Addresses, resolve: Resolve | None = None) -> None:
        self._addresses = addresses
        self._resolve = resolve or resolve_host
        self._inner = plain_transport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Raises `httpx2.ConnectError` for a host that is not to be reached."""
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        literal = read_address(host)
        found = [literal] if literal else await self._resolve(host)
        try:
            if not found:
                raise AddressError("the host has no public address")
            self._addresses.check(host, port, found)
        except AddressError as error:
            raise httpx2.ConnectError(str(error), request=request) from None
        for address in found[:_MAX_ADDRESSES_TRIED]:
            try:
                return await self._inner.handle_async_request(_pinned(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        raise httpx2.ConnectError("could not connect to the host", request=request)

    async def aclose(self) -> None:
        """Close what is open."""
        await self._inner.aclose()


def _pinned(request: httpx2.Request, address: Address) -> httpx2.Request:
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=str(address)),
        # Its `Host` is still the name.
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )


async def resolve_host(host: str) -> Sequence[Address]:
    """Return the addresses of a host, best first; none if the name is unknown."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [ip_address(entry[4][0]) for entry in found]
