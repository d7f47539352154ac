"""The one reading of an image's URL. What is checked here is what is connected to.

Two parsers that disagree about the host are how a checked URL comes to reach another one.
"""

from __future__ import annotations

import httpx

from gateway.images.errors import ImageError
from inference.addresses import is_host_name, read_address


def parse_url(text: str) -> httpx.URL:
    """Read an absolute http or https URL. Raises `ImageError`."""
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, UnicodeError):
        raise ImageError("not a valid URL") from None
    return _checked(url)


def parse_redirect(base: httpx.URL, location: bytes) -> httpx.URL:
    """Read where an answer from `base` sends us. Raises `ImageError`."""
    try:
        url = base.join(location.decode("utf-8"))
    except (httpx.InvalidURL, ValueError):
        raise ImageError("the host redirects to an invalid URL") from None
    if base.scheme == "https" and url.scheme == "http":
        raise ImageError("the host redirects from https to http")
    return _checked(url)


def host_of(url: httpx.URL) -> str:
    """Return the host as it is resolved and connected to: ASCII, IPv6 without brackets."""
    return url.raw_host.decode("ascii")


def _checked(url: httpx.URL) -> httpx.URL:
    if url.scheme not in ("http", "https"):
        raise ImageError("only http and https URLs are fetched")
    if url.userinfo:
        raise ImageError("a URL with a user name or password is not fetched")
    host = host_of(url)
    if read_address(host) is None and not is_host_name(host):
        raise ImageError("not a valid URL: the host is neither a name nor an address")
    if url.port is not None and not 0 < url.port < 65536:
        raise ImageError("not a valid URL: there is no such port")
    return url
