"""From what a request says about its images to images that an engine may be given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from gateway.config import Config
from gateway.image_source import ImageSource
from gateway.images.decode import (
    ImageLimits,
    base64_of,
    check_image,
    is_data_url,
    read_base64,
)
from gateway.images.errors import ImageError
from gateway.images.fetch import Fetcher
from gateway.images.network import CheckedNetwork, Resolve, SystemResolver
from inference.addresses import Addresses
from inference.errors import ErrorCode, TandemError
from inference.request import ImagePart

# So that a request with many images leaves room for others.
PARALLEL_PER_REQUEST = 4
# Decoding is bound by the processor and by memory: these many images are unpacked at once.
DECODING_THREADS = 2


class ImageLoader:
    """Loads the images of requests; one for a gateway process, whose limits it keeps.

    `resolve` finds a host's addresses; the system's resolver if it is not given.
    """

    def __init__(self, config: Config, resolve: Resolve | None = None) -> None:
        self._max_count = config.IMAGE_MAX_COUNT
        self._max_total_bytes = config.IMAGE_MAX_TOTAL_BYTES
        self._limits = ImageLimits(
            max_bytes=config.IMAGE_MAX_BYTES, max_pixels=config.IMAGE_MAX_PIXELS
        )
        self._may_fetch = config.IMAGE_FETCH
        self._system_resolver = SystemResolver(config.IMAGE_FETCH_CONCURRENCY)
        self._fetcher = Fetcher(
            CheckedNetwork(Addresses(config.IMAGE_HOSTS_ALLOWED), resolve or self._system_resolver),
            max_bytes=config.IMAGE_MAX_BYTES,
            timeout_s=config.IMAGE_FETCH_TIMEOUT_S,
            concurrency=config.IMAGE_FETCH_CONCURRENCY,
        )
        self._threads = ThreadPoolExecutor(DECODING_THREADS, thread_name_prefix="decode-image")

    async def load(self, sources: Sequence[ImageSource]) -> list[ImagePart]:
        """Fetch, decode and check the images of one request, and return them in order.

        Raises `TandemError` with the path of a source that is wrong, once the others are stopped.
        """
        if len(sources) > self._max_count:
            path = sources[self._max_count].path
            raise _invalid(path, f"more than {self._max_count} images in one request")
        total = _Total(self._max_total_bytes)
        slots = asyncio.Semaphore(PARALLEL_PER_REQUEST)
        failure: TandemError | None = None
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(each, slots, total)) for each in sources]
        except* TandemError as failures:
            failure = _first(failures)
        if failure is not None:
            raise failure
        return [task.result() for task in tasks]

    async def close(self) -> None:
        """Close connections and let go of the threads."""
        await self._fetcher.close()
        self._system_resolver.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _one(self, source: ImageSource, slots: asyncio.Semaphore, total: _Total) -> ImagePart:
        try:
            async with slots:
                image = await self._take(source)
            total.add(len(image.data))
        except ImageError as refused:
            raise _invalid(source.path, str(refused)) from None
        return image

    async def _take(self, source: ImageSource) -> ImagePart:
        if source.data is not None:
            text, declared = source.data, source.media_type
            return await self._in_thread(lambda: self._unpack(text, declared))
        if source.url is None:
            raise ImageError("url or data: Field required")
        if is_data_url(source.url):
            text = base64_of(source.url)
            # The type in a data: URL is often copied from an example, and nobody minds.
            return await self._in_thread(lambda: self._unpack(text, None))
        if not self._may_fetch:
            raise ImageError("images are not fetched from URLs here; send them as base64")
        body = await self._fetcher.fetch(source.url)
        return await self._in_thread(lambda: check_image(body, self._limits))

    def _unpack(self, text: str, declared: str | None) -> ImagePart:
        return check_image(read_base64(text, self._limits), self._limits, declared)

    async def _in_thread(self, work: Callable[[], ImagePart]) -> ImagePart:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


class _Total:
    """Adds up the bytes of one request's images."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0

    def add(self, count: int) -> None:
        """Count an image. Raises `ImageError` when the sum is too large."""
        self._bytes += count
        if self._bytes > self._max_bytes:
            raise ImageError(f"the request's images are larger than {self._max_bytes} bytes")


def _invalid(path: str, reason: str) -> TandemError:
    return TandemError(ErrorCode.INVALID_REQUEST, f"{path}: {reason}", param=path)


def _first(failures: ExceptionGroup[TandemError]) -> TandemError:
    failure = failures.exceptions[0]
    assert isinstance(failure, TandemError)
    return failure
