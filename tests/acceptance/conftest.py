"""The processes that the acceptance tests share. What a test kills, it starts for itself."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import anthropic
import openai
import pytest

from gateway.config import BASE_DIR
from inference.weights import DEFAULT_MODEL, WeightsError, fetch_default_weights
from tests.acceptance.client import Client
from tests.acceptance.programs import Program, install
from tests.acceptance.stack import Gateway, Stack

_TYPESCRIPT = Path(__file__).parent / "typescript"
_NPM_CI = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
# A real engine loads for long on a busy machine.
_LOAD_PATIENCE_S = 300

MakeClient = Callable[[Gateway], Client]


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
def model(stack: Stack, gateway: Gateway) -> str:
    """Return a scripted model with one engine that nobody kills."""
    name = stack.add_model("vendor/Scripted-1", aliases=["scripted"])
    stack.start_worker(name)
    gateway.wait_for_model(name)
    return name


@pytest.fixture(scope="session")
def real_model(stack: Stack, gateway: Gateway) -> str:
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
        context_tokens=2048,
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
        base_url=f"{gateway.url}/v1", api_key=stack.key, max_retries=0, timeout=30
    ) as client:
        yield client


@pytest.fixture(scope="session")
def typescript(tmp_path_factory: pytest.TempPathFactory, stack: Stack, gateway: Gateway) -> Program:
    """Return Anthropic's TypeScript SDK, of the shared gateway."""
    # Nothing is written beside the sources.
    folder = tmp_path_factory.mktemp("npm") / "typescript"
    shutil.copytree(_TYPESCRIPT, folder, ignore=shutil.ignore_patterns("node_modules"))
    install("the TypeScript SDK", folder, _NPM_CI)
    return Program(command=("node", "run.mjs"), folder=folder, url=gateway.url, key=stack.key)
