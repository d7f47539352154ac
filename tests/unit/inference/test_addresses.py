"""Which addresses are connected to, whichever way they are written."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from gateway.config import ConfigError, load
from inference.addresses import AddressError, Addresses, is_host_name, is_public, parse_allowed

PUBLIC = [
    "8.8.8.8",
    "93.184.215.14",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "192.0.1.1",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001::200e",
    "2001:4860:4860::8888",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
]
CLOSED = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "4000::1",
]


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_is_public(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize("text", CLOSED)
def test_an_address_of_a_special_use_is_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", CLOSED)
def test_it_refuses_a_host_with_one_bad_address_among_good_ones(text: str) -> None:
    with pytest.raises(AddressError, match=r"^the host has no public address$"):
        Addresses([]).check("host.test", 443, [ip_address("8.8.8.8"), ip_address(text)])


@pytest.mark.parametrize("port", [80, 443])
def test_it_takes_the_ports_of_the_web(port: int) -> None:
    Addresses([]).check("host.test", port, [ip_address("8.8.8.8")])


@pytest.mark.parametrize("port", [22, 25, 6379, 8080])
def test_it_refuses_other_ports_of_public_hosts(port: int) -> None:
    with pytest.raises(AddressError, match="ports 80 and 443"):
        Addresses([]).check("host.test", port, [ip_address("8.8.8.8")])


@pytest.mark.parametrize("host", ["images.test", "images.test."])
def test_an_allowed_name_may_have_any_address_and_port(host: str) -> None:
    Addresses(["Images.Test"]).check(host, 9000, [ip_address("10.0.0.1")])


@pytest.mark.parametrize("host", ["other.test", "evil.images.test", "images.test.evil"])
def test_an_allowed_name_stands_for_itself_alone(host: str) -> None:
    with pytest.raises(AddressError):
        Addresses(["images.test"]).check(host, 443, [ip_address("10.0.0.1")])


@pytest.mark.parametrize("text", ["10.1.2.3", "::ffff:10.1.2.3", "fd00::5"])
def test_an_allowed_network_opens_its_addresses_on_any_port(text: str) -> None:
    Addresses(["10.1.0.0/16", "fd00::/64"]).check("host.test", 9000, [ip_address(text)])


def test_an_allowed_network_does_not_open_the_rest_of_a_host() -> None:
    rule = Addresses(["10.1.0.0/16"])
    with pytest.raises(AddressError, match="no public address"):
        rule.check("host.test", 443, [ip_address("10.1.2.3"), ip_address("10.2.0.1")])
    with pytest.raises(AddressError, match="ports 80 and 443"):
        rule.check("host.test", 9000, [ip_address("10.1.2.3"), ip_address("8.8.8.8")])


@pytest.mark.parametrize("text", ["example.com", "example.com.", "a-b.c_d.test", "localhost"])
def test_a_dns_name_is_a_host_name(text: str) -> None:
    assert is_host_name(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a..b",
        ".a",
        "a.test..",
        "-a.test",
        "a-.test",
        "a b.test",
        "a\\b.test",
        "a%2e.test",
        "a@b.test",
        "Example.com",
        "éxample.com",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0x7f000001",
        "a.1",
        "x" * 64,
    ],
)
def test_what_resolvers_could_read_in_another_way_is_no_host_name(text: str) -> None:
    assert not is_host_name(text)


@pytest.mark.parametrize("entry", ["images.test", "10.1.2.3", "10.0.0.0/8", "fd00::/8", "::1"])
def test_an_entry_of_the_allow_list_is_a_name_an_address_or_a_network(entry: str) -> None:
    parse_allowed(entry)


@pytest.mark.parametrize("setting", ["IMAGE_HOSTS_ALLOWED", "MCP_HOSTS_ALLOWED"])
@pytest.mark.parametrize("entry", ["http://images.test", "10.0.0.1/8", "*.test", "host:80", "*"])
def test_other_entries_of_the_allow_list_stop_the_start(
    setting: str, entry: str, no_settings: pytest.MonkeyPatch
) -> None:
    no_settings.setenv(setting, f"ok.test,{entry}")
    load.cache_clear()
    with pytest.raises(ConfigError, match=rf"{setting}: .*is no host name"):
        load()
