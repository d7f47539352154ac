"""What batches cost: to take in, to drain, and to hand out, at 1,000 rows and at 50,000."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import openai
import psutil
from openai.types import Batch

from tests.acceptance.stack import Stack, eventually
from tests.acceptance.teams import MICROS, make_member, set_price
from tests.benchmarks.plots import line_plot
from tests.benchmarks.report import Aim, Section, Table

_SIZES = (1_000, 10_000, 50_000)
_QUICK = (1_000, 5_000)
# With this much text a line, 50,000 lines are 60 MB.
_LINE_BYTES = 1_200
_PATIENCE_S = 1_800
_TAKE_IN_S = 15
_MEMORY_MIB = 200
_CPU_MS = 3
_MIB = 2**20

_METHOD = """\
A file of chat requests, 1.2 kB each, is uploaded with OpenAI's SDK, made a batch of, drained by
one engine worker with the scripted engine (a short answer, no delays), and its output downloaded,
for a key of a prepaid team with prices: each row has its entry in the ledger and its row in the
audit trail. *Taken in* is from the first byte of the upload to the status `in_progress`, and how
much CPU was used meanwhile: on a busy machine the rest is waiting for one. *CPU* is that of all
processes, PostgreSQL and Valkey among them, from the upload to the last row's end, divided by the
rows. *Memory* is how much the largest process grew, and for the download how much the gateway
did."""


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """One batch, as it was measured."""

    rows: int
    megabytes: float
    taken_in_s: float
    taken_in_cpu_s: float
    taken_in_mib: float
    drained_s: float
    cpu_ms: dict[str, float]
    download_s: float
    download_mib: float

    @property
    def row_cpu_ms(self) -> float:
        return sum(self.cpu_ms.values())


def measure(stack: Stack, *, quick: bool) -> Section:
    """Run one batch of each size, the smallest one first as a warm-up."""
    model = stack.add_model("batched", capacity=64, context_tokens=8192)
    set_price(stack, model)
    member = make_member(stack, prepaid=True)
    stack.manage("top_up", member.team_name, str(MICROS), "--nonce", "benchmark")
    gateway, clerk = stack.start_gateway(), stack.start_clerk()
    worker = stack.start_worker(model)
    gateway.wait_for_model(model)
    processes = {
        "gateway": gateway.server.process.pid,
        "clerk": clerk.process.pid,
        "worker": worker.process.pid,
        "PostgreSQL": stack.postgres.process.pid,
        "Valkey": stack.valkey.process.pid,
    }
    section = Section("Batches", _METHOD)
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=member.key) as client:
        sizes = _QUICK if quick else _SIZES
        run = _Runner(client, model, processes)
        run.batch(sizes[0])
        seen = [run.batch(rows) for rows in sizes]
    section.problems += run.problems
    _tabulate(section, seen)
    return section


class _Runner:
    def __init__(self, client: openai.OpenAI, model: str, processes: dict[str, int]) -> None:
        self.problems: list[str] = []
        self._client = client
        self._model = model
        self._processes = processes

    def batch(self, rows: int) -> _Seen:
        """Run one batch of so many rows."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "in.jsonl"
            _write(path, rows, self._model)
            size = path.stat().st_size
            before = self._cpu_s()
            with _Memory(list(self._processes.values())) as taking:
                began_s = time.monotonic()
                batch = self._begin(path)
                taken_in_s = time.monotonic() - began_s
            taken_in_cpu_s = sum(self._cpu_s().values()) - sum(before.values())
            done = self._wait(batch.id, lambda b: b.status == "completed", "the batch completes")
            drained_s = time.monotonic() - began_s - taken_in_s
            after = self._cpu_s()
            with _Memory([self._processes["gateway"]]) as giving:
                began_s = time.monotonic()
                self._check(done, rows, Path(folder) / "out.jsonl")
                download_s = time.monotonic() - began_s
        return _Seen(
            rows=rows,
            megabytes=size / 1e6,
            taken_in_s=taken_in_s,
            taken_in_cpu_s=taken_in_cpu_s,
            taken_in_mib=taking.grown_mib,
            drained_s=drained_s,
            cpu_ms={name: 1000 * (after[name] - before[name]) / rows for name in after},
            download_s=download_s,
            download_mib=giving.grown_mib,
        )

    def _begin(self, path: Path) -> Batch:
        with path.open("rb") as file:
            uploaded = self._client.files.create(file=file, purpose="batch")
        batch = self._client.batches.create(
            input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        return self._wait(batch.id, lambda b: b.status != "validating", "the batch is validated")

    def _wait(self, batch_id: str, over: Callable[[Batch], bool], what: str) -> Batch:
        def look() -> Batch | None:
            batch = self._client.batches.retrieve(batch_id)
            assert batch.status not in ("failed", "expired", "cancelled"), batch
            time.sleep(0.2)
            return batch if over(batch) else None

        found = eventually(look, what, _PATIENCE_S)
        assert found is not None
        return found

    def _check(self, batch: Batch, rows: int, path: Path) -> None:
        assert batch.output_file_id is not None
        with self._client.files.with_streaming_response.content(batch.output_file_id) as content:
            content.stream_to_file(path)
        with path.open("rb") as file:
            ids = [json.loads(line)["custom_id"] for line in file]
        if sorted(ids) != sorted(f"row-{number}" for number in range(rows)):
            self.problems.append(f"{rows} rows: {len(ids)} lines, {len(set(ids))} custom ids")

    def _cpu_s(self) -> dict[str, float]:
        return {name: _cpu_s(pid) for name, pid in self._processes.items()}


class _Memory:
    """How much the largest of some processes grew, looked at all the time."""

    def __init__(self, pids: list[int]) -> None:
        self.grown_mib = 0.0
        self._before = {pid: psutil.Process(pid).memory_info().rss for pid in pids}
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Memory:
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._looking.join()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            for pid, before in self._before.items():
                grown = psutil.Process(pid).memory_info().rss - before
                self.grown_mib = max(self.grown_mib, grown / _MIB)


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of all that it has started."""
    process = psutil.Process(pid)
    return sum(map(_own_cpu_s, [process, *process.children(recursive=True)])) + sum(
        process.cpu_times()[2:4]
    )


def _own_cpu_s(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0


def _write(path: Path, rows: int, model: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        for line in _lines(rows, model):
            file.write(line)


def _lines(rows: int, model: str) -> Iterator[str]:
    text = ("word " * _LINE_BYTES)[: _LINE_BYTES - 200]
    for number in range(rows):
        body = {
            "model": model,
            "max_tokens": 16,
            "messages": [{"role": "user", "content": f"{number} {text}"}],
        }
        line = {
            "custom_id": f"row-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": body,
        }
        yield json.dumps(line) + "\n"


def _tabulate(section: Section, seen: list[_Seen]) -> None:
    head = ["rows", "MB", "taken in, s", "of CPU, s", "memory, MiB", "drained, s", "rows/s"]
    body = [
        [
            f"{each.rows:,}",
            f"{each.megabytes:.1f}",
            f"{each.taken_in_s:.1f}",
            f"{each.taken_in_cpu_s:.1f}",
            f"{each.taken_in_mib:.0f}",
            f"{each.drained_s:.1f}",
            f"{each.rows / each.drained_s:,.0f}",
        ]
        for each in seen
    ]
    section.tables.append(Table("Taking in and draining", head, body))
    names = list(seen[0].cpu_ms)
    section.tables.append(
        Table(
            "CPU a row, ms",
            ["rows", "all", *names],
            [
                [
                    f"{each.rows:,}",
                    f"{each.row_cpu_ms:.2f}",
                    *(f"{each.cpu_ms[name]:.2f}" for name in names),
                ]
                for each in seen
            ],
        )
    )
    section.tables.append(
        Table(
            "Downloading the output",
            ["rows", "s", "gateway's memory, MiB"],
            [[f"{e.rows:,}", f"{e.download_s:.1f}", f"{e.download_mib:.0f}"] for e in seen],
        )
    )
    series = {name: [(each.rows, each.cpu_ms[name]) for each in seen] for name in names}
    series["all"] = [(each.rows, each.row_cpu_ms) for each in seen]
    plot = line_plot("CPU of a row over a batch's rows", "rows", "CPU ms a row", series, log_x=True)
    section.plots.append(plot)
    largest = seen[-1]
    growth = largest.row_cpu_ms / seen[0].row_cpu_ms
    name = f"{largest.rows:,} rows"
    section.aims += [
        Aim(
            f"{name} taken in",
            f"under {_TAKE_IN_S} s",
            f"{largest.taken_in_s:.1f} s",
            met=largest.taken_in_s < _TAKE_IN_S,
        ),
        Aim(
            f"{name}, memory of taking in",
            f"under {_MEMORY_MIB} MiB",
            f"{largest.taken_in_mib:.0f} MiB",
            met=largest.taken_in_mib < _MEMORY_MIB,
        ),
        Aim(
            f"{name}, CPU a row from end to end",
            f"under {_CPU_MS} ms",
            f"{largest.row_cpu_ms:.2f} ms",
            met=largest.row_cpu_ms < _CPU_MS,
        ),
        Aim(
            f"CPU a row, {largest.rows:,} rows to {seen[0].rows:,}",
            "at most 1.2",
            f"{growth:.2f}",
            met=growth <= 1.2,
        ),
    ]
