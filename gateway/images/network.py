"""Connections to checked addresses only."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address

import httpcore

from gateway.images.errors import ImageError
from inference.addresses import Address, AddressError, Addresses, read_address

Resolve = Callable[[str], Awaitable[Sequence[Address]]]

# A host that answers on none of its first addresses is taken as down.
MAX_ADDRESSES_TRIED = 3
CONNECT_TIMEOUT_S = 2.0


class SystemResolver:
    """Asks the system's resolver, in threads of its own: name servers that hang delay no others."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="resolve-image-host")

    async def __call__(self, host: str) -> Sequence[Address]:
        """Return the addresses of a host, best first; none if the name is unknown."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, _look_up, host)
        except OSError:
            return []

    def close(self) -> None:
        """Let go of the threads; a look-up that still runs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str) -> list[Address]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [ip_address(entry[4][0]) for entry in found]


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Resolves a host once, checks the addresses, and connects to one of those.

    As the last thing before the socket, nothing gets around it: not a redirect, and not a name that
    means another address when it is asked for again. TLS is still checked against the host's name.
    """

    def __init__(self, addresses: Addresses, resolve: Resolve) -> None:
        self._addresses = addresses
        self._resolve = resolve
        self._tcp: httpcore.AsyncNetworkBackend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Open a connection. Raises `ImageError`, also if the host cannot be reached."""
        literal = read_address(host)
        found = [literal] if literal else await self._resolve(host)
        if not found:
            raise ImageError("the host has no public address")
        try:
            self._addresses.check(host, port, found)
        except AddressError as error:
            raise ImageError(str(error)) from None
        for address in found[:MAX_ADDRESSES_TRIED]:
            try:
                return await self._tcp.connect_tcp(str(address), port, CONNECT_TIMEOUT_S)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        raise ImageError("could not connect to the host")
