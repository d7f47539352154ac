"""Which rung of the ladder counts, how arms compare, and what a peer that is missing does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.benchmarks import peer_servers
from tests.benchmarks.frontier import Rung, best, closest
from tests.benchmarks.load import Sample
from tests.benchmarks.rounds import Arm, Round, Spread


def _rung(rate: float, p99_ms: float, *, at_once: int = 1, whole: bool = True) -> Rung:
    spread = Spread(rate, rate, rate)
    return Rung(at_once=at_once, requests_per_s=spread, p99_ms=p99_ms, whole=whole)


def _round(*first_ms: float, wall_s: float = 1, client_cpu: float = 0.1, error: str = "") -> Round:
    samples = [
        Sample(
            frames_s=[each / 1000],
            end_s=each / 1000,
            text="",
            stop_reason=None,
            output_tokens=1,
            error=error,
        )
        for each in first_ms
    ]
    return Round(
        samples=samples,
        began_at_s=0,
        wall_s=wall_s,
        cpu_s={},
        client_cpu=client_cpu,
        foreign_cpu=0,
    )


def test_the_best_rung_is_the_fastest_within_the_bound() -> None:
    rungs = [_rung(100, 5), _rung(300, 10), _rung(200, 9), _rung(400, 11)]

    assert best(rungs, 10) == rungs[1]
    assert best(rungs) == rungs[3]
    assert best(rungs, 4) is None


def test_a_rung_with_a_broken_answer_does_not_count() -> None:
    rungs = [_rung(100, 5), _rung(300, 5, whole=False)]

    assert best(rungs) == rungs[0]


def test_arms_compare_where_the_other_comes_closest() -> None:
    ours = [_rung(100, 5), _rung(900, 40)]
    theirs = [_rung(20, 8), _rung(100, 50)]

    assert closest(ours, theirs, (10, 50)) == (10, 5)
    assert closest(ours, theirs, (50,)) == (50, 9)


def test_arms_do_not_compare_at_a_bound_that_one_never_met() -> None:
    ours, theirs = [_rung(100, 5)], [_rung(20, 30)]

    assert closest(ours, theirs, (10,)) is None
    assert closest(ours, theirs, (10, 50)) == (50, 5)


def test_a_rung_sums_up_its_rounds() -> None:
    rung = Rung.of(4, [_round(1, 2), _round(3, 4, wall_s=2)])

    assert rung is not None
    assert rung.requests_per_s == Spread(1.5, 1, 2)
    assert rung.p99_ms == pytest.approx(3.97)
    assert rung.whole


def test_a_rung_leaves_out_the_rounds_that_its_client_spoilt() -> None:
    spoilt = _round(900, client_cpu=0.95)
    rung = Rung.of(4, [_round(1), spoilt])

    assert rung is not None
    assert rung.p99_ms == 1
    assert Rung.of(4, [spoilt]) is None


def test_a_rung_tells_of_a_broken_answer() -> None:
    rung = Rung.of(4, [_round(1), _round(1, error="gone")])

    assert rung is not None
    assert not rung.whole


def test_a_peer_that_cannot_be_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_servers, "load", lambda: SimpleNamespace(DATA_DIR=tmp_path))
    monkeypatch.setenv("PATH", "")
    upstream = Arm(name="direct", port=1, model="", processes={"server": 1})

    with (
        pytest.raises(peer_servers.NotInstalledError, match=r"portkey-.*: there is no npm here"),
        peer_servers.portkey(cast("Any", None), upstream),
    ):
        pass


def test_a_package_manager_that_fails_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    npm = commands / "npm"
    npm.write_text("#!/bin/sh\necho one; echo no such package >&2; exit 1\n", encoding="utf-8")
    npm.chmod(0o755)
    monkeypatch.setattr(peer_servers, "load", lambda: SimpleNamespace(DATA_DIR=tmp_path))
    monkeypatch.setenv("PATH", f"{commands}:/bin")
    upstream = Arm(name="direct", port=1, model="", processes={"server": 1})

    with (
        pytest.raises(peer_servers.NotInstalledError, match="npm said: no such package"),
        peer_servers.portkey(cast("Any", None), upstream),
    ):
        pass
