"""Why a connection could not be made, in plain words: real failures, as the client raises them."""

from __future__ import annotations

import asyncio
import socket
import ssl

import httpx2
import pytest

from inference.connections import reason_of


async def _failure(url: str) -> str:
    async with httpx2.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx2.TransportError) as caught:
            await client.get(url)
    return reason_of(caught.value)


async def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        assert await _failure(url) == "it refuses the connection"


async def test_a_name_that_nobody_knows() -> None:
    assert (await _failure("http://surely.unknown.invalid")).startswith(
        "its host name cannot be resolved: "
    )


async def test_a_server_that_speaks_no_tls() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]

        assert (await _failure(f"https://127.0.0.1:{port}")).startswith("TLS with it fails: ")


def test_a_certificate_that_is_not_trusted() -> None:
    error = ssl.SSLCertVerificationError("no")
    error.verify_message = "self-signed certificate"
    outer = httpx2.ConnectError("no")
    outer.__cause__ = error

    assert reason_of(outer) == "its TLS certificate is not accepted: self-signed certificate"


def test_an_error_in_groups_is_told_by_its_own_words() -> None:
    inner = ExceptionGroup("inner", [ValueError("the secret is missing"), OSError()])

    assert reason_of(ExceptionGroup("outer", [inner])) == "the secret is missing"


def test_an_error_without_words_is_told_by_its_name() -> None:
    assert reason_of(EOFError()) == "EOFError"
