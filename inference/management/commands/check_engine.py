"""`check_engine MODEL`: does this machine run this model, rightly, and how fast?"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import aclosing
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from inference.backends.port import Backend
from inference.backends.registry import build_backend
from inference.backends.upstream_check import check_model
from inference.catalogue import ModelEntry, load_catalogue
from inference.engine.canary import ask_canary, run_canary
from inference.errors import TandemError
from inference.fold import fold
from inference.request import GenerationRequest, Message, Role, Sampling, TextPart

_MAX_TOKENS = 64


class Command(BaseCommand):
    help = "Load a model's engine in this process, run its canary and measure tokens/s."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="id or alias of an enabled model of the catalogue")

    def handle(self, *args: Any, model: str, **options: Any) -> None:
        entry = load_catalogue().find(model)
        if entry is None:
            raise CommandError(f"The catalogue has no enabled model named {model!r}.")
        try:
            asyncio.run(self._check(entry))
        except TandemError as error:
            raise CommandError(error.message) from None

    async def _check(self, entry: ModelEntry) -> None:
        if entry.upstream is not None:
            # It says more of what is wrong there than callers are told.
            self._say("first answer", f"{await check_model(entry):.1f} s")
        backend = build_backend(entry, settings.TANDEM.DATA_DIR / "models")
        began_s = time.perf_counter()
        try:
            await backend.start()
            self._say("loaded", f"{time.perf_counter() - began_s:.1f} s")
            await self._check_canary(backend, entry)
            for streams in sorted({1, entry.capacity}):
                rate = await _tokens_per_s(backend, entry, streams)
                self._say(f"{streams} at once", f"{rate:.1f} tokens/s")
        finally:
            await backend.stop()

    async def _check_canary(self, backend: Backend, entry: ModelEntry) -> None:
        if not entry.canary_prompt:
            self._say("canary", "none")
            return
        if reason := await run_canary(backend, entry):
            raise CommandError(reason)
        self._say("canary", f"{entry.canary_prompt} {await ask_canary(backend, entry)}")

    def _say(self, what: str, result: str) -> None:
        self.stdout.write(f"{what:12} {result}")


async def _tokens_per_s(backend: Backend, entry: ModelEntry, streams: int) -> float:
    """Return how many tokens a second that many requests get together, prefill included."""
    began_s = time.perf_counter()
    tokens = await asyncio.gather(*(_run_one(backend, entry, number) for number in range(streams)))
    return sum(tokens) / (time.perf_counter() - began_s)


async def _run_one(backend: Backend, entry: ModelEntry, number: int) -> int:
    # The number comes first, so that no request finds another's prompt in the prefix cache.
    text = f"{number}. Tell me a long story about a tandem."
    request = GenerationRequest(
        id=str(uuid.uuid4()),
        model=entry.id,
        messages=(Message(role=Role.USER, parts=(TextPart(text),)),),
        sampling=Sampling(max_tokens=_MAX_TOKENS, temperature=0),
        deadline_s=time.time() + 600,
    )
    async with aclosing(backend.generate(request)) as events:
        return (await fold(events)).finished.usage.output_tokens
