"""What counts as an image: its kind, its size, and that it is whole."""

from __future__ import annotations

import base64
import struct
import zlib
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from PIL.GifImagePlugin import GifImageFile

from gateway.images.decode import (
    MAX_JPEG_SCANS,
    ImageLimits,
    base64_of,
    check_image,
    is_data_url,
    read_base64,
)
from gateway.images.errors import ImageError

LIMITS = ImageLimits(max_bytes=100_000, max_pixels=10_000)
FORMATS = {"image/jpeg": "JPEG", "image/png": "PNG", "image/gif": "GIF", "image/webp": "WEBP"}


def picture(kind: str, size: tuple[int, int] = (40, 30), **options: Any) -> bytes:
    image = Image.linear_gradient("L").resize(size).convert("RGB")
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def animation(kind: str, frames: int = 3) -> bytes:
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    images = [Image.new("RGB", (8, 8), colours[n % 3]) for n in range(frames)]
    file = BytesIO()
    images[0].save(file, kind, save_all=True, append_images=images[1:], duration=50)
    return file.getvalue()


def png_chunk(kind: bytes, content: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + check


def png_of_size(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(1000))
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + png_chunk(b"IDAT", body)
        + png_chunk(b"IEND", b"")
    )


def jpeg_with_scans(count: int) -> bytes:
    data = picture("JPEG", progressive=True)
    start = data.rindex(b"\xff\xda")
    scans = count - data.count(b"\xff\xda") + 1
    return data[:start] + data[start:-2] * scans + data[-2:]


@pytest.mark.parametrize(("media_type", "kind"), FORMATS.items())
def test_it_returns_a_whole_image_as_it_came(media_type: str, kind: str) -> None:
    data = picture(kind)
    part = check_image(data, LIMITS)
    assert (part.media_type, part.data) == (media_type, data)


@pytest.mark.parametrize(
    ("declared", "kind"),
    [("image/jpeg", "JPEG"), ("image/jpg", "JPEG"), ("IMAGE/PNG", "PNG"), (None, "WEBP")],
)
def test_it_takes_the_right_media_type(declared: str | None, kind: str) -> None:
    data = picture(kind)
    assert check_image(data, LIMITS, declared).data == data


@pytest.mark.parametrize("declared", ["image/jpeg", "image/svg+xml", "text/html", "png", ""])
def test_it_refuses_a_wrong_media_type_and_says_the_right_one(declared: str) -> None:
    with pytest.raises(ImageError, match="the image is image/png and not of the provided"):
        check_image(picture("PNG"), LIMITS, declared)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PNG",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"<!doctype html><html></html>",
        b"%PDF-1.7",
        b"#!/bin/sh",
        b"%!PS-Adobe-3.0 EPSF-3.0",
        b"RIFF\x00\x00\x00\x00WAVEfmt ",
        b"\x00\x00\x00\x20ftypavif",
        picture("BMP"),
        picture("TIFF"),
        picture("ICO"),
        b"\n" + picture("PNG"),
    ],
    ids=lambda data: repr(data[:8]),
)
def test_it_refuses_files_of_other_kinds(data: bytes) -> None:
    with pytest.raises(ImageError, match="JPEG, PNG, GIF or WebP"):
        check_image(data, LIMITS)


@pytest.mark.parametrize(("media_type", "kind"), FORMATS.items())
def test_it_refuses_a_file_that_is_cut_short(media_type: str, kind: str) -> None:
    data = picture(kind)
    with pytest.raises(ImageError, match=f"the {media_type} file is damaged or cut short"):
        check_image(data[: len(data) // 2], LIMITS)


def test_it_refuses_a_magic_number_with_nothing_behind_it() -> None:
    for start in (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF\x00\x00\x00\x00WEBP"):
        with pytest.raises(ImageError, match="damaged"):
            check_image(start, LIMITS)


def test_it_takes_a_file_of_exactly_the_limit_and_none_above() -> None:
    data = picture("PNG")
    check_image(data, ImageLimits(max_bytes=len(data), max_pixels=10_000))
    with pytest.raises(ImageError, match=f"larger than {len(data) - 1} bytes"):
        check_image(data, ImageLimits(max_bytes=len(data) - 1, max_pixels=10_000))


@pytest.mark.parametrize("kind", FORMATS.values())
def test_it_takes_an_image_of_exactly_the_pixels_and_none_above(kind: str) -> None:
    check_image(picture(kind, (100, 100)), LIMITS)
    with pytest.raises(ImageError, match="more than 10000 pixels"):
        check_image(picture(kind, (101, 100)), LIMITS)


@pytest.mark.parametrize(
    "size", [(10_001, 1), (10_000, 10_000), (20_000, 20_000), (2**31 - 1, 2**31 - 1)]
)
def test_it_refuses_a_bomb_by_its_header(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", pytest.fail)
    with pytest.raises(ImageError, match="more than 10000 pixels"):
        check_image(png_of_size(*size), LIMITS)


def test_it_refuses_a_text_chunk_that_unpacks_to_too_much() -> None:
    data = picture("PNG")
    text = b"Comment\x00\x00" + zlib.compress(bytes(20_000_000))
    bomb = data[:33] + png_chunk(b"zTXt", text) + data[33:]
    with pytest.raises(ImageError, match="damaged"):
        check_image(bomb, LIMITS)


def test_it_refuses_a_jpeg_that_costs_many_passes() -> None:
    check_image(jpeg_with_scans(MAX_JPEG_SCANS), LIMITS)
    with pytest.raises(ImageError, match="too many scans"):
        check_image(jpeg_with_scans(MAX_JPEG_SCANS + 1), LIMITS)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_of_an_animation_it_returns_the_first_frame(kind: str) -> None:
    part = check_image(animation(kind), LIMITS)
    assert part.media_type == "image/png"
    with Image.open(BytesIO(part.data)) as image:
        assert getattr(image, "n_frames", 1) == 1
        red, green, blue = image.convert("RGB").getpixel((4, 4))  # type: ignore[misc]
    assert red > 200 > 50 > green + blue


def test_it_decodes_one_frame_of_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    data = animation("GIF", frames=3000)
    seen: list[int] = []
    seek = GifImageFile.seek

    def counted(image: GifImageFile, frame: int) -> None:
        seen.append(frame)
        seek(image, frame)

    monkeypatch.setattr(GifImageFile, "seek", counted)
    check_image(data, ImageLimits(max_bytes=len(data), max_pixels=10_000))
    assert set(seen) <= {0, 1}


def test_a_first_frame_that_grows_beyond_the_limit_is_refused() -> None:
    noise = Image.effect_noise((100, 90), 100).convert("RGB")
    file = BytesIO()
    noise.save(file, "WEBP", save_all=True, append_images=[noise.rotate(90)], quality=1)
    with pytest.raises(ImageError, match="first frame is larger than 10000 bytes"):
        check_image(file.getvalue(), ImageLimits(max_bytes=10_000, max_pixels=10_000))


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(
    kind=st.sampled_from(sorted(FORMATS.values())),
    animated=st.booleans(),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8),
    end=st.floats(0.2, 1),
)
def test_damage_is_refused_or_harmless(
    kind: str, animated: bool, edits: list[tuple[float, int]], end: float
) -> None:
    whole = animation(kind) if animated and kind != "JPEG" else picture(kind)
    data = bytearray(whole[: round(len(whole) * end)])
    for place, value in edits:
        data[int(place * len(data))] = value
    try:
        part = check_image(bytes(data), LIMITS)
    except ImageError:
        return
    assert part.media_type in FORMATS


def test_it_reads_base64() -> None:
    assert read_base64(base64.b64encode(b"image").decode(), LIMITS) == b"image"


@pytest.mark.parametrize(
    "text",
    ["aW1hZ2U", "aW1h\nZ2U=", " aW1hZ2U=", "aW1hZ2U=x", "-_-_", "aW1hZ2U=====", "é", "\ud800"],
)
def test_it_refuses_what_is_not_base64(text: str) -> None:
    with pytest.raises(ImageError, match="not valid base64"):
        read_base64(text, LIMITS)


def test_it_refuses_base64_by_its_length_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ImageLimits(max_bytes=9, max_pixels=1)
    assert read_base64("A" * 12, limits) == bytes(9)
    monkeypatch.setattr("base64.b64decode", pytest.fail)
    with pytest.raises(ImageError, match="larger than 9 bytes"):
        read_base64("A" * 13, limits)


@pytest.mark.parametrize(
    "url",
    ["data:image/png;base64,QUJD", "DATA:image/PNG;charset=x;BASE64,QUJD", "data:;base64,QUJD"],
)
def test_it_finds_the_base64_of_a_data_url(url: str) -> None:
    assert is_data_url(url)
    assert base64_of(url) == "QUJD"


@pytest.mark.parametrize("url", ["data:", "data:image/png,QUJD", "data:text/plain;base64QUJD"])
def test_it_refuses_other_data_urls(url: str) -> None:
    with pytest.raises(ImageError, match="must have the form data:image/png;base64,"):
        base64_of(url)
