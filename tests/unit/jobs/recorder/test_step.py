"""Which workers record, and what becomes of one that cannot."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from jobs.celery import app
from jobs.recorder import step
from jobs.recorder.drain import Recorder
from jobs.recorder.step import RecorderStep, RecorderThread


def test_every_worker_is_asked() -> None:
    assert "jobs.recorder.step:RecorderStep" in app.steps["worker"]


@pytest.mark.parametrize(("models", "records"), [([], True), (["m"], False)])
def test_workers_without_engines_record(
    settings: Settings, models: list[str], records: bool
) -> None:
    settings.TANDEM = settings.TANDEM.model_copy(update={"ENGINE_MODELS": models})
    assert RecorderStep(None).enabled is records


def test_a_recorder_that_cannot_go_on_ends_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    def break_down(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Recorder, "run", break_down)
    monkeypatch.setattr(step, "end_worker", lambda: ended.append(True))
    with pytest.raises(RuntimeError, match="a bug"):
        RecorderThread().run()
    assert ended == [True]


def test_a_recorder_that_is_told_to_stop_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setattr(Recorder, "run", lambda self, stop: stop.wait())
    monkeypatch.setattr(step, "end_worker", lambda: ended.append(True))
    made = RecorderStep(None)
    made.start(None)
    made.stop(None)
    assert made._thread is not None
    assert not made._thread.is_alive()
    assert ended == []
