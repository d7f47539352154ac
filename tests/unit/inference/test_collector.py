"""The garbage collector's tuning."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from inference.collector import tune_collector


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_it_sets_aside_what_is_loaded_and_collects_less_often() -> None:
    usual = gc.get_threshold()
    tune_collector()
    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold()[0] > usual[0]
    assert gc.get_threshold()[2] > usual[2]
    assert gc.isenabled()
