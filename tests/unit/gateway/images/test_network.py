"""Connections go to the addresses that were checked, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Any

import httpcore
import pytest

from gateway.images.errors import ImageError
from gateway.images.network import MAX_ADDRESSES_TRIED, CheckedNetwork, SystemResolver
from inference.addresses import Address, Addresses


class Wire(httpcore.AsyncMockBackend):
    """Stands for the sockets: remembers who was connected to, and lets some be down."""

    def __init__(self) -> None:
        super().__init__([])
        self.connected: list[tuple[str, int]] = []
        self.down: set[str] = set()

    async def connect_tcp(
        self, host: str, port: int, *args: Any, **kwargs: Any
    ) -> httpcore.AsyncNetworkStream:
        self.connected.append((host, port))
        if host in self.down:
            raise httpcore.ConnectError("refused by 10.9.9.9")
        return await super().connect_tcp(host, port, *args, **kwargs)


class Names:
    """A name server whose answers change: the first answer to the first question, and so on."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers: Iterator[Sequence[str]] = iter(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[Address]:
        self.asked.append(host)
        return [ip_address(text) for text in next(self._answers)]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire = Wire()
    monkeypatch.setattr(httpcore, "AnyIOBackend", lambda: wire)
    return wire


async def test_it_connects_to_the_address_that_it_checked(wire: Wire) -> None:
    names = Names(["8.8.8.8"], ["127.0.0.1"])
    await CheckedNetwork(Addresses([]), names).connect_tcp("rebinding.test", 80)
    assert names.asked == ["rebinding.test"]
    assert wire.connected == [("8.8.8.8", 80)]


async def test_it_checks_again_when_a_name_is_asked_for_again(wire: Wire) -> None:
    network = CheckedNetwork(Addresses([]), Names(["8.8.8.8"], ["127.0.0.1"]))
    await network.connect_tcp("rebinding.test", 80)
    with pytest.raises(ImageError):
        await network.connect_tcp("rebinding.test", 80)
    assert wire.connected == [("8.8.8.8", 80)]


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"])
async def test_it_refuses_an_address_without_asking_for_its_name(wire: Wire, host: str) -> None:
    names = Names()
    with pytest.raises(ImageError, match=r"^the host has no public address$"):
        await CheckedNetwork(Addresses([]), names).connect_tcp(host, 80)
    assert names.asked == []
    assert wire.connected == []


async def test_an_unknown_name_reads_like_a_private_one(wire: Wire) -> None:
    complaints = set()
    for answer in ([], ["10.0.0.1"]):
        with pytest.raises(ImageError) as caught:
            await CheckedNetwork(Addresses([]), Names(answer)).connect_tcp("host.test", 80)
        complaints.add(str(caught.value))
    assert complaints == {"the host has no public address"}
    assert wire.connected == []


async def test_it_tries_the_next_address_of_a_host_that_does_not_answer(wire: Wire) -> None:
    wire.down = {"2606:4700::1"}
    await CheckedNetwork(Addresses([]), Names(["2606:4700::1", "8.8.8.8"])).connect_tcp(
        "h.test", 80
    )
    assert wire.connected == [("2606:4700::1", 80), ("8.8.8.8", 80)]


async def test_it_gives_up_after_a_few_addresses_and_names_none(wire: Wire) -> None:
    found = [f"8.8.8.{n}" for n in range(10)]
    wire.down = set(found)
    with pytest.raises(ImageError, match=r"^could not connect to the host$"):
        await CheckedNetwork(Addresses([]), Names(found)).connect_tcp("host.test", 80)
    assert len(wire.connected) == MAX_ADDRESSES_TRIED


async def test_it_opens_no_unix_socket(wire: Wire) -> None:
    with pytest.raises(NotImplementedError):
        await CheckedNetwork(Addresses([]), Names()).connect_unix_socket("/run/redis.sock")


@pytest.mark.parametrize("host", ["localhost", "localhost.", "127.1", "0x7f.1", "2130706433"])
async def test_the_systems_own_spellings_of_loopback_are_refused(wire: Wire, host: str) -> None:
    resolver = SystemResolver(1)
    with pytest.raises(ImageError, match="no public address"):
        await CheckedNetwork(Addresses([]), resolver).connect_tcp(host, 80)
    resolver.close()
    assert wire.connected == []
