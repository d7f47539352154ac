"""The dashboard's scripts: what they keep, how they write it, and when they come back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.scripts import Scripts

FORMAT, STATE, CONNECTION = (f"dashboard/{name}.js" for name in ("format", "state", "connection"))

# A browser, played: sockets that a test answers for, and a clock that it moves on.
_PLAY = """
const timers = new Map();
let number = 0, now = 0;
globalThis.setTimeout = (call, wait) => {
  timers.set(++number, { call, at: now + wait });
  return number;
};
globalThis.clearTimeout = (timer) => timers.delete(timer);
Math.random = () => 0.5;
const pass = (ms) => {
  const end = now + ms;
  for (;;) {
    const ready = [...timers].filter(([, timer]) => timer.at <= end);
    const due = ready.sort(([, one], [, other]) => one.at - other.at)[0];
    if (!due) break;
    timers.delete(due[0]);
    now = due[1].at;
    due[1].call();
  }
  now = end;
};
const opened = [];
const told = [];
const heard = [];
const looks = [];
globalThis.WebSocket = class {
  static OPEN = 1;
  readyState = 1;
  sent = [];
  closed = false;
  #listeners = {};
  constructor(url) { this.url = url; this.at = now; opened.push(this); }
  addEventListener(name, call) { this.#listeners[name] = call; }
  send(text) { this.sent.push(text); }
  close() { this.closed = true; this.readyState = 3; this.#listeners.close({ code: 1005 }); }
  say(message) { this.#listeners.message({ data: JSON.stringify(message) }); }
  lose(code = 1006) { this.readyState = 3; this.#listeners.close({ code }); }
};
globalThis.location = { protocol: "https:", host: "tandem.example" };
globalThis.document = { hidden: false, addEventListener: (name, call) => looks.push(call) };
globalThis.addEventListener = () => {};
const look = (hidden) => { document.hidden = hidden; for (const call of looks) call(); };
new m.Connection("/admin/live", (message) => heard.push(message), (state) => told.push(state));
const last = () => opened.at(-1);
"""
_SEEN = "return { at: opened.map((socket) => socket.at), told, heard, url: opened[0].url };"


def test_days_are_dates_in_utc(scripts: Scripts) -> None:
    shown = scripts.run(
        FORMAT,
        "return [m.days(1764460800, 0, 0), m.days(1764547199, 0, 0), m.days(1764460800, 6, 0)];",
    )
    assert shown == ["2025-11-30", "2025-11-30", "2025-11-24 to 2025-11-30"]


def play(scripts: Scripts, steps: str) -> dict[str, Any]:
    played: dict[str, Any] = scripts.run(CONNECTION, _PLAY + steps + _SEEN)
    return played


def test_it_passes_on_what_it_hears(scripts: Scripts) -> None:
    seen = play(scripts, "last().say({ a: 1 }); last().say({ b: 2 });")
    assert seen["url"] == "wss://tandem.example/admin/live"
    assert seen["heard"] == [{"a": 1}, {"b": 2}]
    assert set(seen["told"]) == {"live"}


def test_it_comes_back_soon_and_then_at_longer_intervals(scripts: Scripts) -> None:
    """Of those that come, none says anything for the five seconds that it is given."""
    at = play(scripts, "last().say({}); last().lose(); pass(80_000);")["at"]
    waits = [later - earlier - 5_000 for earlier, later in pairwise(at[1:])]
    assert at[:2] == [0, 250]
    assert waits[:7] == [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]


def test_once_it_is_back_it_is_impatient_again(scripts: Scripts) -> None:
    steps = """
    last().lose();
    pass(60_000);
    while (last().closed) pass(100);
    last().say({});
    const before = now;
    last().lose();
    pass(250);
    if (last().at !== before + 250) throw new Error(`after ${last().at - before} ms`);
    """
    play(scripts, steps)


def test_a_connection_that_is_quiet_is_asked_and_one_that_is_dead_replaced(
    scripts: Scripts,
) -> None:
    steps = """
    const first = last();
    first.say({});
    pass(20_000);
    if (first.sent.join() !== "?") throw new Error("it did not ask");
    first.say({});
    pass(20_000 + 5_000);
    if (!first.closed) throw new Error("it waits for a dead connection");
    pass(250);
    """
    seen = play(scripts, steps)
    assert len(seen["at"]) == 2
    assert seen["told"][-1] == "lost"


def test_who_is_not_let_in_does_not_come_again(scripts: Scripts) -> None:
    seen = play(scripts, "last().lose(4401); pass(600_000); look(true); look(false);")
    assert seen["told"] == ["denied"]
    assert len(seen["at"]) == 1


def test_out_of_sight_it_rests_and_in_sight_it_is_back_at_once(scripts: Scripts) -> None:
    steps = """
    last().say({});
    look(true);
    for (let n = 0; n < 5; n += 1) {
      pass(11_000);
      last().say({});
    }
    if (last().closed) throw new Error("too soon");
    pass(600_000);
    if (!last().closed || opened.length !== 1) throw new Error("it does not rest");
    look(false);
    """
    seen = play(scripts, steps)
    assert len(seen["at"]) == 2
    assert seen["told"][-2:] == ["live", "paused"]


def test_a_short_look_elsewhere_changes_nothing(scripts: Scripts) -> None:
    seen = play(scripts, "last().say({}); look(true); pass(5_000); look(false); pass(10_000);")
    assert seen["at"] == [0]


def test_parts_are_kept_by_kind_until_they_are_gone(scripts: Scripts) -> None:
    program = """
    const state = new m.State();
    const parts = { "engine/a": 1, "engine/b/c": 2, rates: 3 };
    const first = state.take({ whole: true, parts });
    const next = state.take({ whole: false, parts: { "engine/a": null, rates: 4 } });
    const kept = [[...state.all("engine")], state.one("rates"), state.one("engine/b/c")];
    return [[...first], [...next], ...kept];
    """
    assert scripts.run(STATE, program) == [
        ["engine", "rates"],
        ["engine", "rates"],
        [["b/c", 2]],
        4,
        2,
    ]


def test_after_a_reconnect_nothing_of_before_is_left(scripts: Scripts) -> None:
    program = """
    const state = new m.State();
    state.take({ whole: true, parts: { "engine/a": 1, batch: 2 } });
    const changed = state.take({ whole: true, parts: { rates: 3 } });
    const kept = [[...state.all("engine")], state.one("batch") ?? null, state.has("batch")];
    return [[...changed].sort(), ...kept];
    """
    assert scripts.run(STATE, program) == [["batch", "engine", "rates"], [], None, False]


@pytest.mark.parametrize(
    ("call", "written"),
    [
        ("time(0.0123)", "12.3 ms"),
        ("time(0.5)", "500 ms"),
        ("time(1.5)", "1.5 s"),
        ("time(null)", "–"),
        ("span(59)", "59 s"),
        ("span(125)", "2 min"),
        ("span(7500)", "2 h 5 min"),
        ("span(273600)", "3 d 4 h"),
        ("span(-5)", "0 s"),
        ("rate(0)", "0.0"),
        ("rate(0.02)", "0.02"),
        ("rate(12.34)", "12.3"),
        ("rate(1234.5)", "1,235"),
        ("rate(null)", "–"),
        ("count(99999)", "99,999"),
        ("count(1234567)", "1.2M"),
        ("percent(0.254)", "25 %"),
        ("percent(null)", "–"),
        ("money(1234567890)", "1,234.57"),
        ("money(130)", "0.00013"),
        ("money(0)", "0.00"),
    ],
)
def test_figures_are_written_as_people_read_them(scripts: Scripts, call: str, written: str) -> None:
    assert scripts.run(FORMAT, f"return m.{call};") == written
