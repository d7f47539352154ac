"""The way from a thread that reads rows to the loop that loads their images."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

from gateway.batches.rows import LoadImages
from gateway.config import Config
from gateway.image_source import ImageSource
from gateway.images.loader import ImageLoader
from inference.request import ImagePart


def images_on(loop: asyncio.AbstractEventLoop, loader: ImageLoader) -> LoadImages:
    """Load with a loader whose loop runs already, in another thread than the rows are read in."""

    def load(sources: Sequence[ImageSource]) -> Future[list[ImagePart]]:
        return asyncio.run_coroutine_threadsafe(loader.load(sources), loop)

    return load


@contextmanager
def image_loading(config: Config) -> Iterator[LoadImages]:
    """Load with a loader and a loop of its own, for processes that have none.

    What still loads at the end of the block is cancelled.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, name="row-images", daemon=True)
        thread.start()
        loader = ImageLoader(config)
        try:
            yield images_on(loop, loader)
        finally:
            asyncio.run_coroutine_threadsafe(loader.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
