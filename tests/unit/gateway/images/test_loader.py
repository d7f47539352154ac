"""Loading the images of a request: their order, their limits, and what errors say."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from gateway.config import Config
from gateway.image_source import ImageSource
from gateway.images.loader import PARALLEL_PER_REQUEST, ImageLoader
from inference.addresses import Address
from inference.errors import ErrorCode, TandemError
from inference.request import ImagePart
from tests.conftest import Eventually


def png(shade: int = 0) -> bytes:
    file = BytesIO()
    Image.new("L", (4, 4), shade).save(file, "PNG")
    return file.getvalue()


def inline(data: bytes, path: str = "here", media_type: str | None = "image/png") -> ImageSource:
    return ImageSource(path=path, data=base64.b64encode(data).decode(), media_type=media_type)


class NoNames:
    """A name server that knows nobody, or says nothing at all."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.asked: list[str] = []
        self.given_up = 0
        self._hangs = hangs

    async def __call__(self, host: str) -> Sequence[Address]:
        self.asked.append(host)
        try:
            if self._hangs and host != "unknown.test":
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return []


@asynccontextmanager
async def loading(names: NoNames | None = None, **settings: Any) -> AsyncIterator[ImageLoader]:
    loader = ImageLoader(Config(**settings), names or NoNames())
    try:
        yield loader
    finally:
        await loader.close()


async def complaint(loader: ImageLoader, *sources: ImageSource) -> str:
    with pytest.raises(TandemError) as caught:
        await loader.load(sources)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    return caught.value.message


async def test_it_loads_nothing_from_nothing() -> None:
    async with loading() as loader:
        assert await loader.load([]) == []


async def test_it_returns_images_in_the_order_of_their_sources() -> None:
    images = [png(shade) for shade in range(20)]
    async with loading() as loader:
        loaded = await loader.load([inline(data) for data in images])
    assert loaded == [ImagePart("image/png", data) for data in images]


async def test_a_wrong_image_is_named_by_its_path() -> None:
    good, bad = inline(png()), inline(b"hello", "messages.0.content.1.source")
    async with loading() as loader:
        message = await complaint(loader, good, bad)
    assert message.startswith("messages.0.content.1.source: not an image of a supported kind")


async def test_a_source_without_an_image_is_refused() -> None:
    async with loading() as loader:
        assert await complaint(loader, ImageSource(path="a")) == "a: url or data: Field required"


async def test_the_media_type_of_base64_must_be_right() -> None:
    async with loading() as loader:
        message = await complaint(loader, inline(png(), "a", "image/jpeg"))
    assert message == "a: the image is image/png and not of the provided media type"


async def test_a_data_url_is_taken_whatever_type_it_names() -> None:
    url = "data:image/jpeg;base64," + base64.b64encode(png()).decode()
    async with loading(IMAGE_FETCH=False) as loader:
        loaded = await loader.load([ImageSource(path="a", url=url)])
    assert loaded == [ImagePart("image/png", png())]


async def test_fetching_can_be_switched_off() -> None:
    names = NoNames()
    async with loading(names, IMAGE_FETCH=False) as loader:
        message = await complaint(loader, ImageSource(path="a", url="https://host.test/"))
    assert message == "a: images are not fetched from URLs here; send them as base64"
    assert names.asked == []


async def test_a_bad_url_is_named_by_its_path() -> None:
    async with loading() as loader:
        message = await complaint(loader, ImageSource(path="a.b", url="file:///etc/passwd"))
    assert message == "a.b: only http and https URLs are fetched"


async def test_it_counts_images_before_it_loads_any() -> None:
    async with loading(IMAGE_MAX_COUNT=2) as loader:
        assert len(await loader.load([inline(png())] * 2)) == 2
        sources = [inline(b"bad", f"messages.{n}") for n in range(3)]
        message = await complaint(loader, *sources)
    assert message == "messages.2: more than 2 images in one request"


async def test_it_adds_up_the_bytes_of_a_request() -> None:
    size = len(png())
    count = 1024 // size
    async with loading(IMAGE_MAX_TOTAL_BYTES=1024) as loader:
        await loader.load([inline(png())] * count)
        message = await complaint(loader, *[inline(png())] * (count + 1))
    assert message == "here: the request's images are larger than 1024 bytes"


async def test_the_first_error_stops_the_others() -> None:
    names = NoNames(hangs=True)
    sources = [ImageSource(path=host, url=f"http://{host}/") for host in ("a.test", "unknown.test")]
    async with loading(names, IMAGE_FETCH_TIMEOUT_S=60) as loader:
        message = await complaint(loader, *sources)
    assert message == "unknown.test: the host has no public address"
    assert names.given_up == 1


async def test_a_request_that_is_cancelled_stops_loading(eventually: Eventually) -> None:
    names = NoNames(hangs=True)
    async with loading(names, IMAGE_FETCH_TIMEOUT_S=60) as loader:
        source = ImageSource(path="a", url="http://a.test/")
        task = asyncio.create_task(loader.load([source]))
        await eventually(lambda: names.asked == ["a.test"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert names.given_up == 1


async def test_one_request_leaves_room_for_others(eventually: Eventually) -> None:
    names = NoNames(hangs=True)
    async with loading(names, IMAGE_FETCH_TIMEOUT_S=60) as loader:
        many = [ImageSource(path="a", url=f"http://a{n}.test/") for n in range(50)]
        task = asyncio.create_task(loader.load(many))
        await eventually(lambda: len(names.asked) == PARALLEL_PER_REQUEST)
        message = await complaint(loader, ImageSource(path="b", url="http://unknown.test/"))
        assert message == "b: the host has no public address"
        assert len(names.asked) == PARALLEL_PER_REQUEST + 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
