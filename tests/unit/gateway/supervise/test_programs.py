"""Which processes a machine runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.config import Config
from gateway.supervise.layout import Layout
from gateway.supervise.programs import Program, embedded_servers, services
from inference.catalogue import ModelEntry
from inference.upstreams import UpstreamEntry

LAYOUT = Layout(Path("/srv/tandem"))
UPSTREAM = UpstreamEntry(
    name="there",
    base_url="https://there.example",
    key="",
    connect_timeout_s=1,
    read_timeout_s=1,
    retries=0,
    requests_per_minute=None,
)


@pytest.fixture
def configured(no_settings: pytest.MonkeyPatch) -> type[Config]:
    """Settings with their defaults, whatever the environment holds."""
    return Config


def model(model_id: str, workers: int = 1, upstream: UpstreamEntry | None = None) -> ModelEntry:
    fields: dict[str, Any] = dict.fromkeys(ModelEntry.__struct_fields__, "")
    numbers = {"context_tokens": 8, "capacity": 1, "max_waiting": 1, "workers": workers}
    rest = {"aliases": (), "engine_options": {}, "created_at": datetime.now(UTC)}
    return ModelEntry(**fields | numbers | rest | {"id": model_id, "upstream": upstream})


def named(programs: list[Program]) -> dict[str, Program]:
    found = {program.name: program for program in programs}
    assert len(found) == len(programs), "two programs share a name"
    return found


def test_both_servers_are_embedded_by_default(configured: type[Config]) -> None:
    servers = named(embedded_servers(configured(), LAYOUT))
    assert servers.keys() == {"postgres", "valkey"}


def test_a_server_with_an_address_of_its_own_is_not_embedded(configured: type[Config]) -> None:
    with_database = configured(DATABASE_URL="postgresql://db.test/tandem")
    with_redis = configured(REDIS_URL="redis://redis.test/0")
    assert named(embedded_servers(with_database, LAYOUT)).keys() == {"valkey"}
    assert named(embedded_servers(with_redis, LAYOUT)).keys() == {"postgres"}


def test_the_embedded_servers_listen_on_no_port(configured: type[Config]) -> None:
    servers = named(embedded_servers(configured(), LAYOUT))
    assert "listen_addresses=" in servers["postgres"].command
    port = servers["valkey"].command.index("--port")
    assert servers["valkey"].command[port + 1] == "0"


def test_the_gateways_share_one_listening_socket(configured: type[Config]) -> None:
    config = configured(HOST="127.0.0.1", PORT=9000, GATEWAY_PROCESSES=3)
    gateway = named(services(config, LAYOUT, []))["gateway"]
    assert (gateway.listen, gateway.copies) == ("127.0.0.1:9000", 3)


def test_clerk_and_beat_run_once_and_own_no_engine(configured: type[Config]) -> None:
    programs = named(services(configured(), LAYOUT, []))
    assert programs.keys() == {"gateway", "clerk", "beat"}
    assert not any(program.environment for program in programs.values())


def test_each_model_gets_its_number_of_engine_workers(configured: type[Config]) -> None:
    programs = named(services(configured(), LAYOUT, [model("big", workers=2), model("small")]))
    engines = {name: p for name, p in programs.items() if name.startswith("engine-")}
    assert engines.keys() == {"engine-1-big", "engine-2-big", "engine-3-small"}
    assert engines["engine-2-big"].environment == {"ENGINE_MODELS": "big"}
    queue = engines["engine-3-small"].command.index("--queues")
    assert engines["engine-3-small"].command[queue + 1] == "engine.small"


def test_models_with_similar_ids_get_workers_of_their_own(configured: type[Config]) -> None:
    programs = named(services(configured(), LAYOUT, [model("org/m:1"), model("org-m/1")]))
    assert {"engine-1-org-m-1", "engine-2-org-m-1"} <= programs.keys()


def test_models_that_others_run_share_their_workers(configured: type[Config]) -> None:
    remote = [
        model("there-1", workers=2, upstream=UPSTREAM),
        model("there-2", upstream=UPSTREAM),
        model("off", workers=0, upstream=UPSTREAM),
    ]
    programs = named(services(configured(), LAYOUT, [*remote, model("here")]))
    engines = {
        name: program.environment["ENGINE_MODELS"]
        for name, program in programs.items()
        if program.environment
    }
    assert engines == {
        "engine-1-here": "here",
        "upstreams-1": "there-1,there-2",
        "upstreams-2": "there-1",
    }
    queues = programs["upstreams-1"].command.index("--queues")
    assert programs["upstreams-1"].command[queues + 1] == "engine.there-1,engine.there-2"
