"""Which backend a model gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference.backends.registry import build_backend
from inference.backends.scripted import ScriptedBackend
from inference.backends.vllm import VllmBackend
from inference.errors import TandemError
from inference.models import Model
from tests.contracts.requests import make_entry


@pytest.mark.parametrize(("name", "kind"), [("vllm", VllmBackend), ("scripted", ScriptedBackend)])
def test_it_builds_the_backend_that_the_model_names(name: str, kind: type) -> None:
    backend = build_backend(make_entry(backend=name, capacity=3), Path())

    assert isinstance(backend, kind)
    assert backend.capacity == 3


@pytest.mark.parametrize("name", Model.Backend.values)
def test_it_knows_every_backend_of_the_catalogue(name: str) -> None:
    assert build_backend(make_entry(backend=name), Path())


def test_it_refuses_a_backend_that_it_does_not_know() -> None:
    with pytest.raises(TandemError, match="unknown backend, 'abacus'"):
        build_backend(make_entry(backend="abacus"), Path())
