"""What is told of parts, and to whom."""

from __future__ import annotations

import json

from gateway.live.parts import changes, message, visible


def test_only_what_has_changed_is_told() -> None:
    before = {"same": b"1", "other": b"2", "gone/a": b"3"}
    now = {"same": b"1", "other": b"4", "new": b"5"}
    assert changes(before, now) == {"other": b"4", "new": b"5", "gone/a": b"null"}
    assert changes(now, now) == {}


def test_money_and_batches_are_for_those_who_may_see_them() -> None:
    names = (
        "alerts",
        "engine/a",
        "usage/today",
        "balances",
        "batch",
        "batch/b",
        "deadlines",
    )
    parts = dict.fromkeys(names, b"1")
    assert set(visible(parts, frozenset())) == {"alerts", "engine/a"}
    assert set(visible(parts, {"jobs.view_batch"})) == {
        *("alerts", "engine/a", "batch", "batch/b", "deadlines")
    }
    assert visible(parts, {"jobs.view_batch", "jobs.view_ledgerentry"}) == parts


def test_a_message_says_whether_it_is_everything() -> None:
    said = json.loads(message({"a/b": b'{"c":[1]}', "d": b"null"}, 12.34, whole=True))
    assert said == {"at_s": 12.3, "whole": True, "parts": {"a/b": {"c": [1]}, "d": None}}
