"""What the dashboard costs while somebody looks: the browser, and the gateway that tells it."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import msgspec
import psutil
from playwright.sync_api import Page, expect, sync_playwright

from inference.request import Lane
from inference.transport.figures import EngineFigures, LaneFigures
from inference.transport.frames import EngineReport, EngineState, encode
from tests.acceptance.stack import Stack
from tests.acceptance.teams import set_price
from tests.benchmarks import arms
from tests.benchmarks.report import Aim, Section, Table, show
from tests.benchmarks.rounds import Arm, Round, Spread, in_turn, run_trace
from tests.benchmarks.traffic import poisson
from tests.browser.looks import LAPTOP, SCHEMES
from tests.browser.people import SUPERUSER, make_person, sign_in
from tests.browser.profiles import new_profile

_ENGINES = 50
_MODELS = 5
_REQUESTS_PER_S = 200
_TOKENS = 4
_BROWSER_SHARE = 0.20
_ADDED_SHARE = 0.05
_NO_BROWSER = "there is no chromium on the PATH (apt-get install chromium): nothing was measured"

_METHOD = f"""\
{_REQUESTS_PER_S} streaming requests a second, {_TOKENS} tokens each, come to the scripted engine as
a Poisson process, and are written down by a clerk. Beside it the heartbeats of {_ENGINES} simulated
engines of {_MODELS} models come twice a second, each with other figures. *Watched*: Chromium,
without a window and on a laptop's screen, shows the dashboard; the processor draws, as there is no
graphics card. *Alone*: the same traffic, and the browser shows an empty page. Both in turn. What
the gateway uses more when it is watched is what the dashboard adds."""


@dataclass(frozen=True)
class _Watched:
    """A round, and what the browser used of a core meanwhile."""

    round: Round
    browser: float


class _Heartbeats(threading.Thread):
    """Beats for engines that are not there."""

    def __init__(self, stack: Stack, models: list[str]) -> None:
        super().__init__(name="heartbeats", daemon=True)
        self._stack = stack
        self._chance = random.Random("engines")
        self._ended = threading.Event()
        self._reports = [
            EngineReport(
                engine_id=f"0198c5a0-0000-7000-8000-{number:012}",
                model=models[number % len(models)],
                host=f"gpu-{number // 8:02}",
                pid=1000 + number,
                state=EngineState.READY,
                capacity=64,
                in_flight=0,
                kv_use=0.0,
                started_at_s=time.time() - 3600 * number,
            )
            for number in range(_ENGINES)
        ]
        self._figures = {each.engine_id: (0, 0) for each in self._reports}

    def run(self) -> None:
        """Beat until stopped."""
        keys = self._stack.keys
        while not self._ended.wait(0.5):
            pipeline = self._stack.redis.pipeline(transaction=False)
            for report in self._reports:
                pipeline.sadd(keys.engines, report.engine_id)
                said = encode(self._now(report))
                pipeline.set(keys.engine(report.engine_id), said, px=2_000)
            pipeline.execute()

    def _now(self, report: EngineReport) -> EngineReport:
        read, written = self._figures[report.engine_id]
        read += self._chance.randint(0, 5000)
        written += self._chance.randint(0, 1500)
        self._figures[report.engine_id] = read, written
        realtime = LaneFigures(
            permits=self._chance.randint(0, 40), input_tokens=read, output_tokens=written
        )
        work = LaneFigures(permits=self._chance.randint(0, 24))
        figures = EngineFigures(
            lanes={Lane.REALTIME: realtime, Lane.BATCH: work},
            kept_permits=16,
            prefix_queries=read,
            prefix_hits=read // 3,
        )
        return msgspec.structs.replace(report, kv_use=self._chance.random(), figures=figures)

    def stop(self) -> None:
        """Beat no more."""
        self._ended.set()
        self.join()


def measure(stack: Stack, *, quick: bool) -> Section:
    """Run the traffic with and without somebody who looks."""
    section = Section("The dashboard", _METHOD)
    chromium = shutil.which("chromium")
    if chromium is None:
        section.problems.append(_NO_BROWSER)
        return section
    make_person(stack, SUPERUSER, superuser=True)
    simulated = [stack.add_model(f"simulated-{number}") for number in range(_MODELS)]
    arm = _arm(stack)
    heartbeats = _Heartbeats(stack, simulated)
    heartbeats.start()
    try:
        with _page(arm, chromium) as (page, browser):
            pair = [replace(arm, name="watched"), replace(arm, name="alone")]
            run = _Run(page, browser, 10.0 if quick else 40.0)
            run(arm, -1)
            taken = in_turn(pair, 2 if quick else 4, run)
    finally:
        heartbeats.stop()
    _report(section, taken)
    return section


def _arm(stack: Stack) -> Arm:
    model = stack.add_model("scripted", capacity=512, max_waiting=1024)
    set_price(stack, model)
    clerk = stack.start_clerk()
    arm = arms.tandem(stack, model)
    more = {"clerk": clerk.process.pid, "PostgreSQL": stack.postgres.process.pid}
    return replace(arm, processes=arm.processes | more)


@contextmanager
def _page(arm: Arm, chromium: str) -> Iterator[tuple[Page, psutil.Process]]:
    """Open a page of an operator who has signed in; yield it with its browser's first process."""
    url = f"http://127.0.0.1:{arm.port}"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium)
        own = psutil.Process().children(recursive=True)
        first = min(
            (each for each in own if each.exe() and "chrom" in each.name()),
            key=lambda process: process.create_time(),
        )
        with new_profile(running, url, None, LAPTOP, SCHEMES[0]) as profile:
            page = profile.open()
            sign_in(page, SUPERUSER)
            yield page, first
        running.close()


class _Run:
    """One round of the traffic, with the page that the arm's name says."""

    def __init__(self, page: Page, browser: psutil.Process, window_s: float) -> None:
        self._page = page
        self._browser = browser
        self._window_s = window_s

    def __call__(self, arm: Arm, number: int) -> _Watched:
        if arm.name == "alone":
            self._page.goto("about:blank")
        else:
            self._page.goto(f"http://127.0.0.1:{arm.port}/admin/")
            expect(self._page.locator("#engines > li")).to_have_count(_ENGINES + 1)
        at_s = poisson(random.Random(number), 1 / _REQUESTS_PER_S, self._window_s)
        message = {"role": "user", "content": f'script: {{"tokens": {_TOKENS}}}'}
        body = {"max_tokens": _TOKENS, "stream": True, "messages": [message]}
        before, began_s = self._used_s(), time.monotonic()
        taken = run_trace(arm, [body] * len(at_s), at_s)
        passed_s = time.monotonic() - began_s
        used_s = sum(used - before.get(pid, 0.0) for pid, used in self._used_s().items())
        return _Watched(taken, used_s / passed_s)

    def _used_s(self) -> dict[int, float]:
        """Return what each process has used: that of a page which was left ends at some time."""
        used = {}
        for member in [self._browser, *self._browser.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = member.cpu_times()
                used[member.pid] = times.user + times.system
        return used


def _report(section: Section, taken: dict[str, list[_Watched]]) -> None:
    rounds = {name: [each.round for each in some] for name, some in taken.items()}
    section.check(f"{_REQUESTS_PER_S} requests/s", rounds, _TOKENS)
    names = list(rounds["alone"][0].cpu_s)
    used = {
        arm: {name: [each.cpu_s[name] / each.wall_s for each in some] for name in names}
        for arm, some in rounds.items()
    }
    rows = [
        [name, *(show(Spread.of(100 * share for share in used[arm][name]), 1) for arm in used)]
        for name in names
    ]
    browser = [each.browser for each in taken["watched"]]
    shares = [[100 * each.browser for each in taken[arm]] for arm in used]
    rows.append(["browser", *(show(Spread.of(each), 1) for each in shares)])
    section.tables.append(Table("CPU, % of one core", ["", *used], rows))
    pairs = zip(used["watched"]["gateway"], used["alone"]["gateway"], strict=True)
    added = Spread.of(watched - alone for watched, alone in pairs).median
    seen = Spread.of(browser).median
    section.aims += [
        Aim(
            f"the browser, {_ENGINES} engines and {_REQUESTS_PER_S} requests/s",
            f"below {_BROWSER_SHARE:.0%} of a core",
            f"{seen:.1%}",
            met=seen < _BROWSER_SHARE,
        ),
        Aim(
            "what the gateway uses more",
            f"below {_ADDED_SHARE:.0%} of a core",
            f"{added:.1%}",
            met=added < _ADDED_SHARE,
        ),
    ]
