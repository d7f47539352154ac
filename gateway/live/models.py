"""The catalogue, as alerts and the engines' figures need it."""

from __future__ import annotations

from datetime import datetime

from gateway.live.parts import Parts
from gateway.live.reading import Reader
from inference.catalogue import ModelEntry, load_catalogue


class Models:
    """The enabled models."""

    name = "database"
    every_s = 10.0

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.parts: Parts = {}
        self.entries: dict[str, ModelEntry] = {}

    async def look(self, now: datetime) -> None:
        """Read the catalogue."""
        catalogue = await self._reader.read(load_catalogue)
        self.entries = {entry.id: entry for entry in catalogue.entries}
