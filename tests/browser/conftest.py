"""A browser, and a running Tandem whose operators it signs in."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, StorageState

from tests.acceptance.client import Client
from tests.acceptance.stack import Gateway, Stack
from tests.acceptance.teams import Member, make_member, set_price
from tests.browser import pictures
from tests.browser.chromium import chromium
from tests.browser.history import add_history
from tests.browser.looks import LAPTOP, Scheme, Screen
from tests.browser.models import FAR_MODEL, MODEL, add_far_model
from tests.browser.new_install import keep_pristine
from tests.browser.people import SUPERUSER, make_person, sign_in
from tests.browser.profiles import OpenProfile, Profile, new_profile
from tests.browser.traffic import Traffic, make_traffic
from tests.contracts.requests import make_entry
from tests.upstream_server import UpstreamServer, upstream_server

_FAILED = pytest.StashKey[bool]()
_ANSWER = (
    "Tides are the sea's answer to the Moon: its pull raises one bulge of water towards it, and"
    " the Earth's own fall around it leaves another behind."
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember failures, of which the pages' fixture keeps a picture."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Return a browser."""
    with chromium() as running:
        pictures.begin()
        yield running


@pytest.fixture(scope="package")
def stack(browser: Browser) -> Iterator[Stack]:
    """Return a database, a Valkey and what is needed to start more."""
    # Not below pytest's own folder: Unix sockets have short paths.
    with (
        tempfile.TemporaryDirectory(prefix="tandem-browser-") as folder,
        Stack(Path(folder)) as running,
    ):
        make_person(running, SUPERUSER, superuser=True)
        keep_pristine(running)
        yield running


@pytest.fixture(scope="package")
def gateway(stack: Stack) -> Gateway:
    """Return a gateway, with a clerk and what wakes the clerk, that nobody kills."""
    add_history(stack, MODEL)
    stack.start_clerk(SETTLE_AFTER_S="2")
    stack.start_beat()
    return stack.start_gateway()


@pytest.fixture(scope="package")
def upstream() -> Iterator[UpstreamServer]:
    """Return who runs a model elsewhere, and answers unless told otherwise."""
    with upstream_server(make_entry(context_tokens=100_000)) as running:
        yield running


@pytest.fixture(scope="package")
def model(stack: Stack, gateway: Gateway, upstream: UpstreamServer) -> str:
    """Return a priced model with one scripted engine; it is the fallback of the upstream's."""
    name = stack.add_model(
        MODEL,
        display_name="Demo 8B",
        aliases=["demo"],
        engine_options={"text": _ANSWER, "token_delay_s": 0.01},
    )
    set_price(stack, name)
    add_far_model(stack, upstream.url, fallback=name)
    stack.add_mcp_server("builtin", transport="builtin")
    stack.start_worker(name, FAR_MODEL)
    for each in (name, FAR_MODEL):
        gateway.wait_for_model(each)
    return name


@pytest.fixture(scope="package")
def traffic(stack: Stack, gateway: Gateway, model: str, upstream: UpstreamServer) -> Traffic:
    """Return what there is to look at."""
    return make_traffic(stack, gateway, model, upstream)


@pytest.fixture
def member(stack: Stack, gateway: Gateway) -> Member:
    """Return a team of this test's own, and its key."""
    return make_member(stack, name=f"Team {secrets.token_hex(4)}")


@pytest.fixture
def client(gateway: Gateway, member: Member) -> Iterator[Client]:
    """Return a client with that key."""
    caller = Client(gateway.url, member.key)
    with caller.http:
        yield caller


@pytest.fixture(scope="package")
def signed_in(browser: Browser, stack: Stack, gateway: Gateway) -> StorageState:
    """Return the browser's state once a superuser has signed in."""
    with new_profile(browser, gateway.url, None, LAPTOP, "light") as profile:
        sign_in(profile.open(), SUPERUSER)
        return profile.context.storage_state()


@pytest.fixture
def open_profile(
    browser: Browser, gateway: Gateway, request: pytest.FixtureRequest
) -> Iterator[OpenProfile]:
    """Return a function that makes browser profiles.

    At the test's end all of their pages must have been without fault.
    """
    profiles: list[Profile] = []
    with ExitStack() as cleanup:

        def make(
            state: StorageState | None,
            screen: Screen = LAPTOP,
            scheme: Scheme = "light",
            url: str = gateway.url,
        ) -> Profile:
            profile = cleanup.enter_context(new_profile(browser, url, state, screen, scheme))
            profiles.append(profile)
            return profile

        yield make
        if request.node.stash.get(_FAILED, False):
            _keep_last_sight(request.node.name, profiles)
    for profile in profiles:
        profile.watch.check()


def _keep_last_sight(test: str, profiles: list[Profile]) -> None:
    pages = [page for profile in profiles for page in profile.context.pages]
    for number, page in enumerate(pages):
        pictures.keep(page, f"failed-{test}-{number}".replace("/", "_"))


@pytest.fixture
def profile(open_profile: OpenProfile, signed_in: StorageState) -> Profile:
    """Return a superuser's profile, on a laptop by day."""
    return open_profile(signed_in)


@pytest.fixture
def page(profile: Profile) -> Page:
    """Return a superuser's page, on a laptop by day."""
    return profile.open()
