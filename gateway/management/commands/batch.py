"""Submits batches to a gateway, here or elsewhere, watches them, and fetches their results."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from openai.types import Batch
from tqdm import tqdm

from gateway.batch_client import (
    KEY_VARIABLE,
    URL_VARIABLE,
    BatchClient,
    BatchClientError,
    MakeBar,
    summary,
)
from gateway.supervise.serving import reachable_host

_POLL_S = 1.0


class Command(BaseCommand):
    help = (
        "Submits a JSONL file of requests as a batch, watches it, and fetches its results. "
        "It talks to the gateway alone, so it works from any machine."
    )
    # It needs no database: the gateway may be on another machine.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        config = settings.TANDEM
        here = f"http://{reachable_host(config.HOST)}:{config.PORT}"
        shared = ArgumentParser(add_help=False)
        shared.add_argument(
            "--url",
            default=os.environ.get(URL_VARIABLE) or here,
            help=f"address of the gateway, or {URL_VARIABLE} (%(default)s)",
        )
        shared.add_argument(
            "--key", help=f"API key; better in the environment variable {KEY_VARIABLE}"
        )
        actions = parser.add_subparsers(dest="action", required=True)
        submit = actions.add_parser("submit", parents=[shared], help="upload and start a batch")
        submit.add_argument("file", type=Path, help="one request a line, in OpenAI's form")
        submit.add_argument(
            "--endpoint", help="what the requests are for; the first line's url if not given"
        )
        submit.add_argument("--watch", action="store_true", help="show its progress to the end")
        watch = actions.add_parser("watch", parents=[shared], help="show a batch's progress")
        watch.add_argument("id")
        cancel = actions.add_parser("cancel", parents=[shared], help="cancel a batch")
        cancel.add_argument("id")
        results = actions.add_parser("results", parents=[shared], help="fetch a batch's results")
        results.add_argument("id")
        results.add_argument(
            "--output", type=Path, help="file for the answers; errors go beside it (stdout)"
        )

    def handle(self, *args: Any, action: str, url: str, key: str | None, **options: Any) -> None:
        # On a terminal a bar, in a log nothing.
        bars = partial(tqdm, disable=None, file=sys.stderr)
        try:
            client = BatchClient(url, (key or os.environ.get(KEY_VARIABLE, "")).strip())
            match action:
                case "submit":
                    self._submit(client, bars, options)
                case "watch":
                    self._report(client.watch(options["id"], bars, _POLL_S))
                case "cancel":
                    self._report(client.cancel(options["id"]))
                case "results":
                    self._results(client, bars, options)
        except (BatchClientError, OSError) as error:
            raise CommandError(str(error)) from None

    def _submit(self, client: BatchClient, bars: MakeBar, options: dict[str, Any]) -> None:
        batch = client.submit(options["file"], options["endpoint"], bars)
        self.stdout.write(batch.id)
        self.stdout.flush()
        if options["watch"]:
            self._report(client.watch(batch.id, bars, _POLL_S))

    def _report(self, batch: Batch) -> None:
        counts = batch.request_counts
        ended = counts and counts.completed + counts.failed
        rows = f"{ended} of {counts.total} rows done; " if counts else ""
        self.stdout.write(f"{batch.id}: {rows}{summary(batch)}")
        problems = batch.errors.data if batch.errors and batch.errors.data else []
        for problem in problems:
            line = f"line {problem.line}: " if problem.line else ""
            self.stderr.write(self.style.ERROR(f"{line}{problem.message} ({problem.code})"))
        if batch.status == "failed":
            raise BatchClientError("the batch failed: nothing of it was run")

    def _results(self, client: BatchClient, bars: MakeBar, options: dict[str, Any]) -> None:
        output: Path | None = options["output"]
        batch = client.ended(options["id"])
        for file_id, what, path in (
            (batch.output_file_id, "answers", output),
            (batch.error_file_id, "errors", output and _beside(output)),
        ):
            if file_id is None:
                continue
            if path is None:
                client.download(file_id, sys.stdout.buffer, bars)
                continue
            with path.open("wb") as sink:
                lines = client.download(file_id, sink, bars)
            self.stdout.write(f"{lines} {what} in {path}")


def _beside(output: Path) -> Path:
    return output.with_name(f"{output.stem}.errors{output.suffix}")
