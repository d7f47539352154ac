"""Prints how vLLM's own server must be started to run the engine that Tandem's worker runs.

For the default model. Prints a JSON object: `model`, its catalogue id; `flags`, the command line;
`environment`. A process of its own, because vLLM must be imported to know its defaults.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, is_dataclass
from typing import Any

import django
import msgspec

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
django.setup()

from inference.backends.vllm import _ENVIRONMENT  # noqa: E402
from inference.catalogue import load_catalogue  # noqa: E402
from inference.engine.options import EngineOptions  # noqa: E402
from inference.weights import DEFAULT_MODEL  # noqa: E402


def main() -> None:
    """Print the arguments. Raises `LookupError` if the model is not in the catalogue."""
    # Among them: that vLLM's log does not go to standard output.
    os.environ |= _ENVIRONMENT
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from inference.backends.vllm_runtime import engine_arguments

    defaults = vars(make_arg_parser(FlexibleArgumentParser()).parse_args([]))
    entry = load_catalogue().find(DEFAULT_MODEL)
    if entry is None:
        raise LookupError(f"'{DEFAULT_MODEL}' is not in the catalogue")
    ours = vars(engine_arguments(entry, EngineOptions.from_settings().models_dir))
    # Tandem's gateway writes no access log either.
    ours["disable_uvicorn_access_log"] = True
    flags = [
        word
        for name, value in ours.items()
        if value != defaults[name]
        for word in _flag(name, value)
    ]
    answer = {"model": entry.id, "flags": flags, "environment": _ENVIRONMENT}
    sys.stdout.write(msgspec.json.encode(answer).decode())


def _flag(name: str, value: Any) -> list[str]:
    option = "--" + name.replace("_", "-")
    match value:
        case True:
            return [option]
        case False:
            return ["--no-" + name.replace("_", "-")]
        case list():
            return [option, *map(str, value)]
        case dict():
            return [option, msgspec.json.encode(value).decode()]
    if is_dataclass(value) and not isinstance(value, type):
        return [option, msgspec.json.encode(asdict(value)).decode()]
    return [option, str(value)]


if __name__ == "__main__":
    main()
