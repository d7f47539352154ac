"""The processes that the acceptance tests share. What a test kills, it starts for itself."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.client import Client
from tests.acceptance.stack import Gateway, Stack

MakeClient = Callable[[Gateway], Client]


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Return a database, a Valkey and what is needed to start more."""
    # Not below pytest's own folder: Unix sockets have short paths.
    with tempfile.TemporaryDirectory(prefix="tandem-acceptance-") as folder, Stack(
        Path(folder)
    ) as running:
        yield running


@pytest.fixture(scope="session")
def gateway(stack: Stack) -> Gateway:
    """Return a gateway with default settings that nobody kills."""
    return stack.start_gateway()


@pytest.fixture(scope="session")
def model(stack: Stack, gateway: Gateway) -> str:
    """Return a scripted model with one engine that nobody kills."""
    name = stack.add_model("vendor/Scripted-1", aliases=["scripted"])
    stack.start_worker(name)
    gateway.wait_for_model(name)
    return name


@pytest.fixture
def make_client(stack: Stack) -> Iterator[MakeClient]:
    """Return a function that makes clients of a gateway."""
    with ExitStack() as cleanup:

        def make(gateway: Gateway) -> Client:
            client = Client(gateway.url, stack.key)
            cleanup.callback(client.http.close)
            return client

        yield make


@pytest.fixture
def client(make_client: MakeClient, gateway: Gateway) -> Client:
    """Return a client of the shared gateway."""
    return make_client(gateway)
