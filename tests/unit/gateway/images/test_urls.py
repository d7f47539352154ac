"""How a URL is read: once, strictly, and as it is connected to."""

from __future__ import annotations

import pytest

from gateway.images.errors import ImageError
from gateway.images.urls import host_of, parse_redirect, parse_url


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("https://example.com/a.png", "example.com", None),
        ("HTTPS://EXAMPLE.COM./a.png", "example.com.", None),
        ("http://example.com:8080/", "example.com", 8080),
        ("http://[2606:4700::1]:80/", "2606:4700::1", None),
        ("https://bücher.example/", "xn--bcher-kva.example", None),
        ("http://127.0.0.1/", "127.0.0.1", None),
        ("http://example.com?x=http://127.0.0.1/", "example.com", None),
        ("http://example.com#@127.0.0.1/", "example.com", None),
    ],
)
def test_it_reads_the_host_and_the_port(text: str, host: str, port: int | None) -> None:
    url = parse_url(text)
    assert (host_of(url), url.port) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com/a.png",
        "//example.com/a.png",
        "/etc/passwd",
        "file:///etc/passwd",
        "ftp://example.com/a.png",
        "gopher://127.0.0.1:6379/_x",
        "javascript:alert(1)",
        "http:///a.png",
        "http:a.png",
        "http:\\\\127.0.0.1\\a.png",
        "http://example.com\\@127.0.0.1/",
        "http://127.0.0.1\\@example.com/",
        "http://example.com\\.evil.test/",
        "http://user@example.com/",
        "http://user:password@example.com/",
        "http://example.com@127.0.0.1/",
        "http://127.1/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://2130706433/",
        "http://127.0.0.1./",
        "http://①②⑦.⓪.⓪.①/",
        "http://１２７.0.0.1/",
        "http://ⓔxample.com/",
        "http://%31%32%37.0.0.1/",
        "http://example.com%00.evil.test/",
        "http://exam ple.com/",
        "http://example.com:0/",
        "http://example.com:-1/",
        "http://example.com:65536/",
        "http://example.com:80:80/",
        "http://example.com:x/",
        "http://[fe80::1%25eth0/",
        "http://[::1",
        "http://example.com/\r\nHost: evil.test",
        "http://\ud800.test/",
        "http://example.com/\ud800",
        "http://" + "a." * 40000,
    ],
)
def test_it_refuses_what_could_be_read_in_two_ways(text: str) -> None:
    with pytest.raises(ImageError) as caught:
        parse_url(text)
    assert "127" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (b"/b.png", "https://example.com/b.png"),
        (b"b.png?x=1", "https://example.com/a/b.png?x=1"),
        (b"//other.test/b.png", "https://other.test/b.png"),
        (b"https://other.test/b.png", "https://other.test/b.png"),
    ],
)
def test_it_follows_a_redirect_from_where_it_was_sent(location: bytes, expected: str) -> None:
    assert str(parse_redirect(parse_url("https://example.com/a/a.png"), location)) == expected


@pytest.mark.parametrize(
    "location",
    [
        b"http://example.com/b.png",
        b"file:///etc/passwd",
        b"data:image/png;base64,AAAA",
        b"//user@example.com/",
        b"//127.1/",
        b"//[::1",
        b"\xff",
    ],
)
def test_it_holds_a_redirect_to_the_same_rules(location: bytes) -> None:
    with pytest.raises(ImageError):
        parse_redirect(parse_url("https://example.com/a.png"), location)


def test_a_redirect_may_go_from_http_to_https() -> None:
    url = parse_redirect(parse_url("http://example.com/a.png"), b"https://example.com/a.png")
    assert url.scheme == "https"


@pytest.mark.parametrize("location", [rb"https:\\127.0.0.1\a", rb"\\127.0.0.1\a", rb"/\127.0.0.1"])
def test_backslashes_do_not_lead_a_redirect_to_another_host(location: bytes) -> None:
    assert host_of(parse_redirect(parse_url("https://example.com/"), location)) == "example.com"
