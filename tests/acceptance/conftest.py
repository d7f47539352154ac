"""The processes that the acceptance tests share. What a test kills, it starts for itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import anthropic
import httpx
import openai
import pytest

from gateway.config import BASE_DIR
from inference.weights import DEFAULT_MODEL, WeightsError, fetch_default_weights
from tests.acceptance.client import Client
from tests.acceptance.programs import Program, install
from tests.acceptance.routes import (
    DIRECT,
    ROUTES,
    UPSTREAMS,
    Origin,
    add_far_models,
    gap,
    reached,
    start_worker,
)
from tests.acceptance.stack import ROOT, Gateway, Stack, eventually, free_port

_TYPESCRIPT = Path(__file__).parent / "typescript"
_NPM_CI = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
# A real engine loads and answers for long on a busy machine.
_LOAD_PATIENCE_S = 300
_ANSWER_PATIENCE_S = 120
_REAL_CONTEXT_TOKENS = 2048

_SCRIPTED = "vendor/Scripted-1"
_GIFTED = "sees-and-thinks"
_GIFTS = {"vision": True, "reasoning": "default_on"}
_PARROT = "parrot"

MakeClient = Callable[[Gateway], Client]
Reach = Callable[[str], str]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests for every way to the models that they use, where they are marked so."""
    marked = metafunc.definition.get_closest_marker("every_route")
    if marked and "route" in metafunc.fixturenames:
        names = [DIRECT, *(f"through {dialect}" for dialect in UPSTREAMS)]
        metafunc.parametrize("route", ROUTES, indirect=True, ids=names, scope="module")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what the way cannot carry."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            route = str(item.callspec.params.get("route", DIRECT))
            found = gap(route, f"{item.path.name}::{item.originalname}")
            if found is not None:
                item.add_marker(pytest.mark.skip(reason=found.what))


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Return a database, a Valkey and what is needed to start more."""
    # Not below pytest's own folder: Unix sockets have short paths.
    with (
        tempfile.TemporaryDirectory(prefix="tandem-acceptance-") as folder,
        Stack(Path(folder)) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def gateway(stack: Stack) -> Gateway:
    """Return a gateway with default settings that nobody kills."""
    return stack.start_gateway()


@pytest.fixture(scope="session")
def engine_model(stack: Stack, gateway: Gateway) -> str:
    """Return a scripted model with one engine that nobody kills."""
    stack.add_model(_SCRIPTED, aliases=["scripted"])
    start_worker(stack, gateway, [_SCRIPTED])
    return _SCRIPTED


@pytest.fixture(scope="session")
def engine_models(stack: Stack, gateway: Gateway, engine_model: str) -> list[str]:
    """Return that one and those that can do more, all with engines that nobody kills."""
    stack.add_model(_GIFTED, **_GIFTS)
    stack.add_model(_PARROT, engine_options={"echo": True})
    start_worker(stack, gateway, [_GIFTED, _PARROT])
    return [engine_model, _GIFTED, _PARROT]


@pytest.fixture(scope="session")
def far_models(
    stack: Stack, gateway: Gateway, engine_models: list[str]
) -> dict[tuple[str, str], str]:
    """Return the names of models that lead to these through an upstream, by way and model."""
    fields = {name: _GIFTS if name == _GIFTED else {} for name in engine_models}
    origin = Origin("through", gateway.url, stack.mint("routes"))
    names = add_far_models(stack, origin, fields)
    start_worker(stack, gateway, names.values())
    return names


@pytest.fixture(scope="module")
def route(request: pytest.FixtureRequest) -> str:
    """Return the way to models that a test takes: see `tests.acceptance.routes`."""
    return str(getattr(request, "param", DIRECT))


@pytest.fixture(scope="module")
def reach(request: pytest.FixtureRequest, route: str) -> Reach:
    """Return a function from a model with an engine to what this way calls it."""
    return lambda name: reached(request, name, route, "far_models")


@pytest.fixture(scope="module")
def model(engine_model: str, reach: Reach) -> str:
    """Return a scripted model."""
    return reach(engine_model)


@pytest.fixture(scope="module")
def gifted(engine_models: list[str], reach: Reach) -> str:
    """Return a scripted model that sees, and that thinks unless asked not to."""
    return reach(_GIFTED)


@pytest.fixture(scope="module")
def parrot(engine_models: list[str], reach: Reach) -> str:
    """Return a scripted model without vision that says what it was told."""
    return reach(_PARROT)


@pytest.fixture(scope="session")
def real_engine(stack: Stack, gateway: Gateway) -> str:
    """Return a model with a vLLM engine. Its weights are kept from one run to the next."""
    models_dir = Path(os.environ.get("TEST_MODELS_DIR", BASE_DIR / "var" / "models"))
    try:
        weights = fetch_default_weights(models_dir, print, bars=False)
    except WeightsError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(f"no weights for a real engine: {error}")
    (stack.layout.models / DEFAULT_MODEL).symlink_to(weights)
    stack.add_model(
        DEFAULT_MODEL,
        backend="vllm",
        weights=DEFAULT_MODEL,
        context_tokens=_REAL_CONTEXT_TOKENS,
        # A quarter is kept for realtime requests; batches of a thousand rows use the rest.
        capacity=12,
        # Its chat template knows no tools.
        tool_parser="hermes",
        describe_tools=True,
        engine_options={"dtype": "float32", "kv_cache_gib": 1},
        canary_prompt="What is the capital of France?",
        canary_expect="Paris",
        offer_mcp_tools=False,
    )
    stack.add_mcp_server("builtin", DEFAULT_MODEL, transport="builtin")
    stack.start_worker(DEFAULT_MODEL, patience_s=_LOAD_PATIENCE_S)
    gateway.wait_for_model(DEFAULT_MODEL)
    return DEFAULT_MODEL


@pytest.fixture(scope="session")
def far_real_models(stack: Stack, gateway: Gateway, real_engine: str) -> dict[tuple[str, str], str]:
    """Return the names of models that lead to that one through an upstream, by way and model."""
    origin = Origin("real", gateway.url, stack.mint("real routes"))
    fields = {"context_tokens": _REAL_CONTEXT_TOKENS}
    names = add_far_models(stack, origin, {real_engine: fields})
    start_worker(stack, gateway, names.values())
    return names


@pytest.fixture(scope="module")
def real_model(request: pytest.FixtureRequest, real_engine: str, route: str) -> str:
    """Return a model with a vLLM engine."""
    return reached(request, real_engine, route, "far_real_models")


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


@pytest.fixture
def sdk(stack: Stack, gateway: Gateway) -> Iterator[anthropic.Anthropic]:
    """Return Anthropic's own client, of the shared gateway."""
    with anthropic.Anthropic(base_url=gateway.url, api_key=stack.key) as client:
        yield client


@pytest.fixture
def chat(stack: Stack, gateway: Gateway) -> Iterator[openai.OpenAI]:
    """Return OpenAI's own client, of the shared gateway."""
    with openai.OpenAI(
        base_url=f"{gateway.url}/v1", api_key=stack.key, max_retries=0, timeout=_ANSWER_PATIENCE_S
    ) as client:
        yield client


@pytest.fixture(scope="session")
def typescript(
    tmp_path_factory: pytest.TempPathFactory, stack: Stack, gateway: Gateway
) -> Iterator[Program]:
    """Return Anthropic's TypeScript SDK, of the shared gateway."""
    # Nothing is written beside the sources.
    folder = tmp_path_factory.mktemp("npm") / "typescript"
    shutil.copytree(_TYPESCRIPT, folder, ignore=shutil.ignore_patterns("node_modules"))
    install("the TypeScript SDK", folder, _NPM_CI)
    program = Program(command=("node", "run.mjs"), folder=folder, url=gateway.url, key=stack.key)
    with closing(program):
        yield program


@pytest.fixture(scope="session")
def web_server() -> Iterator[str]:
    """Return the URL of the tests' MCP server over HTTP."""
    port = free_port()
    command = [sys.executable, str(ROOT / "tests" / "mcp_server.py"), str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/mcp"
        eventually(lambda: _answers(url), "the MCP server answers")
        yield url
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        httpx.get(url, trust_env=False)
    except httpx.TransportError:
        return False
    return True
