"""Which addresses a stranger's URL may lead to: public ones, and those that the operator allows.

The tables follow IANA's special-purpose registries. They are spelled out because `is_global` of the
standard library differs between patch releases, and counts what embeds a private IPv4 address as
global.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)


class AddressError(Exception):
    """A host that is not to be connected to. The message holds nothing that the URL does not."""


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# A port other than the web's own is a service that was not put up for strangers.
PUBLIC_PORTS = (80, 443)

_CLOSED_IPV4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers; some clouds' metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's host agent, on a public address
        "169.254.0.0/16",  # link-local; most clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
# Of IPv6 only this is global unicast: loopback, ULA, link-local, multicast, ... lie outside.
_OPEN_IPV6 = IPv6Network("2000::/3")
_CLOSED_IPV6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")


def is_host_name(text: str) -> bool:
    """Whether this is a DNS name in ASCII and lower case, one dot at its end allowed.

    The last label starts with no digit: resolvers read `127.1`, `0x7f.1` and `2130706433` as IPv4.
    """
    labels = text.removesuffix(".").split(".")
    return all(_LABEL.fullmatch(label) for label in labels) and not labels[-1][0].isdigit()


def is_public(address: Address) -> bool:
    """Whether an address is reached over the Internet and belongs to no special use."""
    bare = _unwrap(address)
    if isinstance(bare, IPv4Address):
        return not any(bare in network for network in _CLOSED_IPV4)
    if bare.scope_id is not None or bare not in _OPEN_IPV6:
        return False
    return not any(bare in network for network in _CLOSED_IPV6)


def _unwrap(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one only stands for: IPv4-mapped, or through NAT64."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def parse_allowed(text: str) -> str | Network:
    """Read an entry of the allow-list: a host name, an address, or a network in CIDR form."""
    name = text.lower().removesuffix(".")
    if is_host_name(name):
        return name
    try:
        return ip_network(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no host name, address or network such as 10.1.0.0/16"
        ) from None


class Addresses:
    """The rule that every connection is held against."""

    def __init__(self, allowed: Iterable[str]) -> None:
        entries = [parse_allowed(entry) for entry in allowed]
        self._names = {entry for entry in entries if isinstance(entry, str)}
        self._networks = [entry for entry in entries if not isinstance(entry, str)]

    def check(self, host: str, port: int, addresses: Sequence[Address]) -> None:
        """Raise `AddressError` unless every address of the host may be connected to.

        One bad address among good ones refuses the host: no honest one mixes them.
        """
        if host.removesuffix(".") in self._names:
            return
        strange = [address for address in addresses if not self._is_allowed(address)]
        if not all(is_public(address) for address in strange):
            # As for a name that does not exist: the caller learns nothing of the inner network.
            raise AddressError("the host has no public address")
        if strange and port not in PUBLIC_PORTS:
            raise AddressError("only ports 80 and 443 are fetched from")

    def _is_allowed(self, address: Address) -> bool:
        return any(_unwrap(address) in network for network in self._networks)


def read_address(text: str) -> Address | None:
    """Return the IP address that a host is written as, or None if it is a name."""
    try:
        return ip_address(text)
    except ValueError:
        return None
