"""Where vLLM keeps prefixes that its device has no more room for: host memory, then a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import vllm
from vllm.config import KVTransferConfig
from vllm.platforms import current_platform

from inference.catalogue import ModelEntry
from inference.errors import ErrorCode, TandemError


def offload_arguments(entry: ModelEntry, weights: Path) -> dict[str, Any]:
    """Return the engine arguments for what the catalogue says of offloading, if it does.

    Makes the folder that prefixes are to be kept in. Raises `TandemError` where that cannot be, or
    where vLLM has no offloading for this machine's device.
    """
    if not entry.kv_offload_gib:
        return {}
    # What vLLM itself asks, but in another process, after the weights were loaded.
    if not (current_platform.is_cuda_alike() or current_platform.is_xpu()):
        raise TandemError(
            ErrorCode.ENGINE_FAILED,
            f"{entry.id} has kv_offload_gib, but vLLM offloads the KV cache of CUDA, ROCm and XPU "
            f"devices only, and found the device {current_platform.device_type!r}: set it to 0",
        )
    options: dict[str, Any] = {"cpu_bytes_to_use": int(entry.kv_offload_gib * 2**30)}
    if entry.kv_offload_dir:
        folder = _make_private(Path(entry.kv_offload_dir) / _edition(entry, weights))
        options["spec_name"] = "TieringOffloadingSpec"
        options["secondary_tiers"] = [{"type": "fs", "root_dir": str(folder)}]
    connector = KVTransferConfig(
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        kv_connector_extra_config=options,
    )
    return {"kv_transfer_config": connector}


def _edition(entry: ModelEntry, weights: Path) -> str:
    """Name what the cache of a prefix depends on, beyond the prefix.

    vLLM goes by the path of the weights alone: it would read what others than those which lie
    there now have computed, and answer nonsense.
    """
    files = [
        (path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in weights.iterdir()
    ]
    told = msgspec.json.encode(
        [vllm.__version__, entry.engine_options, sorted(files)], order="deterministic"
    )
    return hashlib.sha256(told).hexdigest()[:16]


def _make_private(folder: Path) -> Path:
    """Make a folder that no other user can look into: caches can be turned back into prompts."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise TandemError(ErrorCode.ENGINE_FAILED, f"kv_offload_dir: {error}") from None
    return folder
