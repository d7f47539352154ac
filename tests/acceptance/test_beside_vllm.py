"""What the page on compatibility says of Tandem beside vLLM's own server."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.acceptance.client import TIMEOUT_S
from tests.acceptance.stack import Gateway, Stack
from tests.comparison.checks import CHECKS, outcome
from tests.comparison.server import Check, Server

pytestmark = [pytest.mark.acceptance, pytest.mark.engine]


@pytest.fixture
def server(stack: Stack, gateway: Gateway, real_model: str) -> Iterator[Server]:
    """Return Tandem as one of the servers that are compared."""
    headers = {"authorization": f"Bearer {stack.key}"}
    with httpx.Client(
        base_url=gateway.url, headers=headers, timeout=TIMEOUT_S, trust_env=False
    ) as http:
        yield Server(http, real_model)


@pytest.mark.parametrize("check", CHECKS, ids=[check.statement for check in CHECKS])
def test_it_does_what_the_page_says(server: Server, check: Check) -> None:
    assert outcome(check, server) == "yes"
