"""What the official clients of upstreams have in common: how they connect and how they fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, NamedTuple

import httpx2

from inference.backends.upstream_faults import (
    Answered,
    answered,
    fault,
    garbled,
    silent,
    unreachable,
)
from inference.backends.upstream_limits import limit
from inference.connections import reason_of
from inference.upstreams import UpstreamEntry

KEYLESS = "none"
"""What the clients, which insist on a key, send where an upstream needs none."""

KEEP_CONNECTIONS_S = 120.0
"""A new connection costs several times what passing a request on does."""


class ClientErrors(NamedTuple):
    """One client's exceptions."""

    timeout: type[Exception]
    connection: type[Exception]
    status: type[Exception]
    other: type[Exception]


def connection_options(upstream: UpstreamEntry, capacity: int) -> dict[str, Any]:
    """Return what the connections for so many requests at once are made with.

    No redirect is followed: it could lead the key and the prompt to somebody else.
    """
    return {
        "timeout": httpx2.Timeout(upstream.read_timeout_s, connect=upstream.connect_timeout_s),
        "follow_redirects": False,
        # How many run at once is the admission's matter.
        "limits": httpx2.Limits(
            max_connections=None,
            max_keepalive_connections=capacity,
            keepalive_expiry=KEEP_CONNECTIONS_S,
        ),
        # A cookie for one caller's request must not go with another's.
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        # Compressed, the events of a stream would wait for each other.
        "headers": {"accept-encoding": "identity"},
        "event_hooks": {"response": [limit]},
    }


@contextmanager
def explained(errors: ClientErrors, upstream: UpstreamEntry) -> Iterator[None]:
    """Turn whatever the client raises into an `UpstreamError`."""
    try:
        yield
    except (errors.timeout, httpx2.TimeoutException) as error:
        if isinstance(error.__cause__ or error, httpx2.ConnectTimeout | httpx2.PoolTimeout):
            raise unreachable(f"no connection in {upstream.connect_timeout_s:g} s") from None
        raise silent(upstream.read_timeout_s) from None
    except (errors.connection, httpx2.TransportError) as error:
        raise unreachable(reason_of(error.__cause__ or error)) from None
    except errors.status as error:
        raise fault(_answered(error)) from None
    except errors.other as error:
        # In a stream that had begun.
        raise fault(answered(200, getattr(error, "body", None), {})) from None
    except (
        httpx2.DecodingError,
        json.JSONDecodeError,
        UnicodeDecodeError,
        RecursionError,
    ) as error:
        raise garbled(str(error)) from None


def _answered(error: Any) -> Answered:
    return answered(error.status_code, error.body, error.response.headers)
