"""An engine's connections to Redis."""

from __future__ import annotations

from inference.transport.connection import connect
from inference.transport.courier import Courier
from inference.transport.keys import Keys
from inference.transport.options import TransportOptions
from inference.transport.streams import Reader


class Link:
    """What the parts of one engine share: `reader` is for reads that wait, `client` for the rest.

    Commands that others wait for travel with the `courier`.
    """

    def __init__(self, options: TransportOptions) -> None:
        self.keys = Keys(options.prefix)
        self.client = connect(options.redis_url)
        self.reader = Reader(options.redis_url)
        self.courier = Courier(self.client)

    async def close(self) -> None:
        """Close the connections."""
        await self.reader.aclose()
        await self.client.aclose()
