"""Shows the records that the recorder put aside, and puts them back or deletes them."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any, cast

import redis
from django.core.management.base import BaseCommand

from inference.engine.options import transport_options
from inference.transport.connection import connect_sync
from inference.transport.keys import Keys

_AT_ONCE = 100
_Entry = tuple[bytes, dict[bytes, bytes]]


class Command(BaseCommand):
    help = "Lists the records of requests that could not be written to the database, and why."

    def add_arguments(self, parser: ArgumentParser) -> None:
        choice = parser.add_mutually_exclusive_group()
        choice.add_argument(
            "--retry",
            action="store_true",
            help="put them back: what is still wrong with one is found again",
        )
        choice.add_argument("--delete", action="store_true", help="delete them, bodies and all")

    def handle(self, *args: Any, retry: bool, delete: bool, **options: Any) -> None:
        transport = transport_options()
        keys = Keys(transport.prefix)
        count = 0
        with connect_sync(transport.redis_url) as client:
            for entry_id, fields in _entries(client, keys.dead_records):
                count += 1
                self.stdout.write(f"{fields[b'id'].decode()}  {fields[b'reason'].decode()}")
                with client.pipeline(transaction=True) as pipeline:
                    if retry:
                        pipeline.xadd(keys.records, {"r": fields[b"r"]})
                    if retry or delete:
                        pipeline.xdel(keys.dead_records, entry_id)
                    pipeline.execute()
        done = "put back" if retry else "deleted" if delete else "put aside"
        self.stdout.write(f"{count} records {done}.")


def _entries(client: redis.Redis, stream: str) -> Iterator[_Entry]:
    """Yield what is in the stream by now: what is put aside meanwhile is another run's."""
    start, last = "-", client.xrevrange(stream, count=1)
    end = cast("list[_Entry]", last)[0][0] if last else b"0"
    while found := cast("list[_Entry]", client.xrange(stream, start, end, count=_AT_ONCE)):
        yield from found
        start = f"({found[-1][0].decode()}"
