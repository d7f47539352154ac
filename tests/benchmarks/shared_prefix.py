"""Rows that begin alike: what it saves that engines run them together."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import openai
from openai.types import Batch

from gateway.batches.openai.show import parse_batch_name
from inference.weights import DEFAULT_MODEL
from jobs.models import RequestRecord, Work
from tests.acceptance import teams
from tests.acceptance.stack import Gateway, Stack, ending, eventually
from tests.benchmarks.report import Aim, Section, Table, show
from tests.benchmarks.rounds import Spread, in_turn

_ROUNDS, _QUICK_ROUNDS = 2, 1
_PROMPTS, _ROWS_EACH, _QUICK_ROWS_EACH = 8, 6, 3
_TOKENS = 8
# About 700 tokens of the default model.
_RULES = 44
# The cache has room for about five system prompts with their rows.
_CAPACITY, _CACHE_GIB = 4, 0.16
_TOGETHER, _AS_THEY_COME = "together", "as they come"
_CACHED_SHARE = 0.7
_PATIENCE_S = 900.0

_METHOD = """\
A batch of OpenAI's whose rows have {prompts} system prompts of about 700 tokens by turns and a
short question each, run by the real engine with a KV cache that has room for about five of them.
*{together}* is how Tandem runs it: rows that begin alike one after the other. *{as_they_come}* is
the same with what it knows of their beginnings taken away, so that they run by their lines. Each
run has an engine of its own, whose cache is empty, and other prompts than any before it. Tokens/s
are those of prompts and answers, from the first row's start to the last row's end; *cached* is the
share of prompts that was found in the cache."""


@dataclass(frozen=True)
class _Arm:
    """One order of a batch's rows."""

    name: str


@dataclass(frozen=True)
class _Seen:
    """One run of a batch."""

    tokens_per_s: float
    cached_share: float


def measure(stack: Stack, *, quick: bool) -> Section:
    """Run batches in both orders, in turn."""
    stack.manage("fetch_model")
    model = stack.add_model(
        "small-cache",
        backend="vllm",
        weights=DEFAULT_MODEL,
        context_tokens=2048,
        capacity=_CAPACITY,
        engine_options={"dtype": "float32", "kv_cache_gib": _CACHE_GIB},
    )
    stack.start_clerk()
    runner = _Runner(stack, stack.start_gateway(), model, _QUICK_ROWS_EACH if quick else _ROWS_EACH)
    seen = in_turn(
        [_Arm(_TOGETHER), _Arm(_AS_THEY_COME)],
        _QUICK_ROUNDS if quick else _ROUNDS,
        lambda arm, _number: runner.run(together=arm.name == _TOGETHER),
    )
    names = {"prompts": _PROMPTS, "together": _TOGETHER, "as_they_come": _AS_THEY_COME}
    section = Section("Rows that begin alike", _METHOD.format(**names))
    section.tables.append(_table(seen))
    section.aims += _aims(seen)
    return section


class _Runner:
    """Runs one batch after another."""

    def __init__(self, stack: Stack, gateway: Gateway, model: str, rows_each: int) -> None:
        self._stack, self._model, self._rows_each = stack, model, rows_each
        self._client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=stack.key)
        self._runs = 0

    def run(self, *, together: bool) -> _Seen:
        """Run a batch in one of the orders, on an engine that starts once it waits."""
        self._runs += 1
        rows = "\n".join(self._rows()).encode()
        file = self._client.files.create(file=("rows.jsonl", rows), purpose="batch")
        batch = self._client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        self._wait(batch, "in_progress")
        if not together:
            forget = f"UPDATE {Work._meta.db_table} SET prefix = 0 RETURNING id"  # noqa: S608
            teams.rows(self._stack, forget)
        with ending(self._stack.start_worker(self._model)):
            self._wait(batch, "completed")
        return self._seen(batch)

    def _rows(self) -> Iterator[str]:
        for number in range(_PROMPTS * self._rows_each):
            prompt = number % _PROMPTS
            rules = " ".join(f"Rule {rule}: page {rule * 7} is closed." for rule in range(_RULES))
            messages = [
                {"role": "system", "content": f"Handbook {self._runs}-{prompt}. {rules}"},
                {"role": "user", "content": f"{number}: say which page is closed."},
            ]
            body = {"model": self._model, "max_tokens": _TOKENS, "messages": messages}
            row = {"custom_id": f"{number}", "method": "POST", "url": "/v1/chat/completions"}
            yield json.dumps(row | {"body": body})

    def _wait(self, batch: Batch, status: str) -> None:
        def has_come() -> bool:
            time.sleep(0.25)
            now = self._client.batches.retrieve(batch.id).status
            assert now in ("validating", "in_progress", "finalizing", "completed"), now
            return now == status

        eventually(has_come, f"{batch.id} is {status}", _PATIENCE_S)

    def _seen(self, batch: Batch) -> _Seen:
        ((began_at, ended_at, prompts, cached, answers),) = teams.rows(
            self._stack,
            "SELECT min(taken_at), max(engine_ended_at), sum(input_tokens), sum(cached_tokens),"  # noqa: S608
            f" sum(output_tokens) FROM {RequestRecord._meta.db_table} WHERE batch_id = %s",
            parse_batch_name(batch.id),
        )
        seconds = (ended_at - began_at).total_seconds()
        return _Seen(float(prompts + answers) / seconds, float(cached / prompts))


def _table(seen: dict[str, list[_Seen]]) -> Table:
    rows = [
        [
            name,
            show(Spread.of(each.tokens_per_s for each in some)),
            show(Spread.of(each.cached_share * 100 for each in some)),
        ]
        for name, some in seen.items()
    ]
    return Table("Rows by their order", ["", "tokens/s", "cached, %"], rows)


def _aims(seen: dict[str, list[_Seen]]) -> Iterator[Aim]:
    together, apart = seen[_TOGETHER], seen[_AS_THEY_COME]
    share = Spread.of(each.cached_share for each in together)
    yield Aim(
        "share of prompts found in the cache",
        f"at least {_CACHED_SHARE:.0%}",
        f"{share.median:.0%} ({share.low:.0%} to {share.high:.0%})",
        met=share.low >= _CACHED_SHARE,
    )
    faster = Spread.of(
        a.tokens_per_s / b.tokens_per_s for a, b in zip(together, apart, strict=True)
    )
    yield Aim("tokens/s of those as they come", "more", f"{show(faster)} times", met=faster.low > 1)
