"""What the way through Tandem to an upstream costs, beside asking the upstream itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tests.acceptance.routes import UPSTREAMS
from tests.acceptance.stack import Stack, insert_upstream
from tests.benchmarks import arms
from tests.benchmarks.path import PACE_S, Load, busy, cpu, paced
from tests.benchmarks.report import Aim, Section, Table, show
from tests.benchmarks.rounds import Arm, Round, Rounds, Spread, in_turn, percentile

_NAMES = {"anthropic": "as it was sent", "openai": "translated"}
_ADDED_MS = 3

_METHOD = f"""\
Streaming `/v1/messages`. *Direct* is the scripted engine behind the least ASGI application under
Daphne. Tandem has that very process as an upstream, by the backend `anthropic`, where a request and
its answer travel as they were sent, and by the backend `openai`, where both are translated. A
request of Tandem's has a key, limits, a balance and a record, as any other, and goes through Valkey
to a worker that asks the upstream; the clerk does not run. All arms run in turn, after a warm-up,
with the same requests from the same client process on kept connections. *First token* is from the
request's first byte to the first frame with text, and the answers' heads come with it; *added* is
an arm's percentile less direct's. Paced streams send a token every {PACE_S * 1000:.0f} ms."""


def measure(stack: Stack, *, quick: bool) -> Section:
    """Run every load through both backends, and against the upstream itself."""
    section = Section("The way to an upstream", _METHOD)
    with _running(stack) as some:
        for arm in some:
            Load(requests=400, at_once=16, tokens=16).run(arm)
        _alone(section, some, quick=quick)
        busy(section, some, quick=quick)
        paced(section, some, quick=quick)
    return section


@contextmanager
def _running(stack: Stack) -> Iterator[list[Arm]]:
    """Run all arms, direct last."""
    with arms.direct(stack) as direct:
        models = {name: _add_model(stack, direct, backend) for backend, name in _NAMES.items()}
        gateway = stack.start_gateway()
        worker = stack.start_worker(*models.values())
        processes = {
            "gateway": gateway.server.process.pid,
            "worker": worker.process.pid,
            "Valkey": stack.valkey.process.pid,
            "upstream": direct.processes["server"],
        }
        for model in models.values():
            gateway.wait_for_model(model)
        headers = {"x-api-key": stack.key}
        ours = [
            Arm(name=name, port=gateway.port, model=model, headers=headers, processes=processes)
            for name, model in models.items()
        ]
        yield [*ours, direct]


def _add_model(stack: Stack, direct: Arm, backend: str) -> str:
    url = f"http://127.0.0.1:{direct.port}{UPSTREAMS[backend]}"
    insert_upstream(stack.layout.database_url, backend, base_url=url, retries=0)
    # Direct knows the older name of the limit only.
    options = {"max_tokens_field": "max_tokens"} if backend == "openai" else {}
    return stack.add_model(
        f"by-{backend}",
        backend=backend,
        upstream_id=backend,
        upstream_model=direct.model,
        upstream_options=options,
        context_tokens=100_000,
        capacity=512,
        max_waiting=1024,
    )


def _rounds(section: Section, some: Sequence[Arm], load: Load, rounds: int) -> Rounds:
    taken = in_turn(some, rounds, lambda arm, _: load.run(arm))
    section.check(f"{load.at_once} at once", taken, load.tokens)
    return taken


def _alone(section: Section, some: Sequence[Arm], *, quick: bool) -> None:
    """One request after the other: the added milliseconds."""
    load = Load(requests=100 if quick else 250, at_once=1, tokens=1)
    taken = _rounds(section, some, load, rounds := 4 if quick else 8)
    direct = taken["direct"]
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    rows = []
    for name, each in taken.items():
        added = {of: _first(each, p) - _first(direct, p) for of, p in shares.items()}
        by_round = Spread.of(
            percentile(one.first_ms, 0.5) - percentile(other.first_ms, 0.5)
            for one, other in zip(each, direct, strict=True)
        )
        told = [f"{_first(each, p):.2f} ({added[of]:+.2f})" for of, p in shares.items()]
        rows.append([name, *told, show(by_round, 2), cpu(each, of=rounds * load.requests)])
        if name == _NAMES["anthropic"]:
            section.aims.append(
                Aim(
                    "first token of a request that travels as it was sent, added at p50",
                    f"under {_ADDED_MS} ms",
                    f"{added['p50']:.2f} ms (p99 {added['p99']:.2f} ms)",
                    met=added["p50"] < _ADDED_MS,
                )
            )
    title = f"First token, 1 at once, ms and what is added ({rounds} rounds of {load.requests})"
    head = ["", *shares, "added at p50, by round", "CPU s per 1,000 requests"]
    section.tables.append(Table(title, head, rows))


def _first(rounds: Iterable[Round], share: float) -> float:
    """Return a percentile of the first tokens of all rounds, in milliseconds."""
    return percentile([value for each in rounds for value in each.first_ms], share)
