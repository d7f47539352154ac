"""Keeping prefixes outside the device: what vLLM is told, what it makes of it, where it cannot.

No device here can do it, so that vLLM's side ends where the copying would begin.
"""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from inference.backends.vllm import VllmBackend
from inference.catalogue import ModelEntry
from inference.errors import TandemError
from inference.models import Model
from inference.weights import DEFAULT_MODEL
from tests.contracts.requests import make_entry

pytestmark = pytest.mark.engine


def _entry(**fields: Any) -> ModelEntry:
    return make_entry(backend="vllm", weights=DEFAULT_MODEL, **fields)


@pytest.fixture
def capable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the device be one that vLLM offloads."""
    from inference.backends import vllm_offload

    device = SimpleNamespace(is_cuda_alike=lambda: True, is_xpu=lambda: False, device_type="cuda")
    monkeypatch.setattr(vllm_offload, "current_platform", device)


def _arguments(entry: ModelEntry, models_dir: Path) -> Namespace:
    from inference.backends.vllm_runtime import engine_arguments

    return engine_arguments(entry, models_dir)


def _config(entry: ModelEntry, models_dir: Path) -> Any:
    """Return what vLLM makes of a model's arguments."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    return AsyncEngineArgs.from_cli_args(_arguments(entry, models_dir)).create_engine_config()


def _spec(config: Any) -> Any:
    """Return vLLM's own plan for offloading a cache of two blocks of one layer."""
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import (
        build_offloading_config,
    )
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.kv_offload.factory import OffloadingSpecFactory

    model = config.model_config
    layer = FullAttentionSpec(
        block_size=config.cache_config.block_size,
        num_kv_heads=model.get_total_num_kv_heads(),
        head_size=model.get_head_size(),
        dtype=model.dtype,
    )
    cache = KVCacheConfig(
        num_blocks=2, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], layer)]
    )
    return OffloadingSpecFactory.create_spec(build_offloading_config(config, cache))


def test_a_model_offloads_nothing_unless_told(models_dir: Path) -> None:
    assert _arguments(_entry(), models_dir).kv_transfer_config is None


@pytest.mark.usefixtures("capable")
def test_vllm_takes_the_host_memory(models_dir: Path) -> None:
    config = _config(_entry(kv_offload_gib=0.5), models_dir)

    assert config.kv_transfer_config.is_kv_transfer_instance
    assert config.kv_transfer_config.kv_connector == "OffloadingConnector"
    spec = _spec(config)
    assert type(spec).__name__ == "CPUOffloadingSpec"
    assert spec.num_chunks * spec.kv_bytes_per_chunk == pytest.approx(2**29, rel=0.01)


@pytest.mark.usefixtures("capable")
def test_vllm_takes_the_folder_behind_it(models_dir: Path, tmp_path: Path) -> None:
    config = _config(_entry(kv_offload_gib=0.01, kv_offload_dir=str(tmp_path / "kv")), models_dir)

    manager = _spec(config).get_manager()
    manager.shutdown()

    (kept,) = (tmp_path / "kv").glob("*/*/config.json")
    assert json.loads(kept.read_text())["dtype"] == "float32"
    edition = kept.parents[1]
    assert edition.stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("capable")
def test_other_weights_or_options_never_read_what_these_have_kept(tmp_path: Path) -> None:
    weights = tmp_path / DEFAULT_MODEL
    weights.mkdir()
    (weights / "model.safetensors").write_text("one")

    def folder(**options: Any) -> str:
        entry = _entry(
            kv_offload_gib=1, kv_offload_dir=str(tmp_path / "kv"), engine_options=options
        )
        told = _arguments(entry, tmp_path).kv_transfer_config.kv_connector_extra_config
        return str(told["secondary_tiers"][0]["root_dir"])

    first = folder()
    assert folder() == first
    assert folder(dtype="float16") != first
    (weights / "model.safetensors").write_text("another")
    assert folder() != first


@pytest.mark.usefixtures("capable")
def test_a_folder_that_cannot_be_made_is_named(models_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("not a folder")

    with pytest.raises(TandemError, match=f"kv_offload_dir: .*{tmp_path / 'kv'}"):
        _arguments(_entry(kv_offload_gib=1, kv_offload_dir=str(tmp_path / "kv")), models_dir)


@pytest.mark.usefixtures("capable")
def test_vllm_itself_offloads_nothing_from_a_cpu(models_dir: Path) -> None:
    """When this fails, vLLM has learned it and `offload_arguments` may let it through."""
    spec = _spec(_config(_entry(kv_offload_gib=0.01), models_dir))

    with pytest.raises(Exception, match="only supported on CUDA-alike and XPU"):
        spec.get_worker(None)


async def test_an_engine_on_a_cpu_refuses_before_it_loads_anything(models_dir: Path) -> None:
    with pytest.raises(TandemError, match=r"kv_offload_gib, .* device 'cpu': set it to 0"):
        await VllmBackend(_entry(kv_offload_gib=1), models_dir).start()


@pytest.mark.django_db
def test_check_engine_says_so_on_a_cpu(models_dir: Path) -> None:
    weights = str(models_dir / DEFAULT_MODEL)
    Model.objects.create(id="tiny", weights=weights, context_tokens=1024, kv_offload_gib=1)

    with pytest.raises(CommandError, match=r"^tiny has kv_offload_gib, .* set it to 0$"):
        call_command("check_engine", "tiny")
