"""What the admin's forms are sent, filled in as far as they must be."""

from __future__ import annotations

MODELS = "/admin/inference/model/"


def model_form(**changes: object) -> dict[str, object]:
    return {
        "id": "tiny",
        "aliases": "",
        "enabled": "on",
        "backend": "vllm",
        "weights": "tiny",
        "context_tokens": 2048,
        "engine_options": "{}",
        "kv_offload_gib": 0,
        "capacity": 32,
        "max_waiting": 256,
        "workers": 1,
        "ttft_target_factor": 2.5,
        "itl_target_factor": 2,
        "images_without_vision": "placeholder",
        "reasoning": "none",
        "default_sampling": "{}",
        "tool_recursion_limit": 10,
    } | changes
