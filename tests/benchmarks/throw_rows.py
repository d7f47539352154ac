"""Sends every row of a batch's input file to a server at once, as one does who has no queue.

A process of its own: it is ended when the measurement is over, and its open requests with it.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

import httpx
import msgspec

_TIMEOUT_S = 1_800


def main() -> None:
    """Send the rows. Ends with an error if one is refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, help="the file")
    parser.add_argument("port", type=int)
    parser.add_argument("--priority", type=int, help="vLLM's; lower is served first")
    options = parser.parse_args()
    lines = msgspec.json.Decoder().decode_lines(options.rows.read_bytes())
    bodies: list[dict[str, Any]] = [line["body"] for line in lines]
    if options.priority is not None:
        bodies = [body | {"priority": options.priority} for body in bodies]
    asyncio.run(_throw(f"http://127.0.0.1:{options.port}", bodies))


async def _throw(url: str, bodies: list[dict[str, Any]]) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=url, limits=limits, timeout=_TIMEOUT_S, trust_env=False
    ) as client:
        await asyncio.gather(*(_ask(client, body) for body in bodies))


async def _ask(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    answer = await client.post("/v1/chat/completions", json=body)
    answer.raise_for_status()


if __name__ == "__main__":
    main()
