"""Checks that bytes are an image, of a kind and a size that an engine may be given."""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from io import BytesIO

from PIL import Image

from gateway.images.errors import ImageError
from inference.request import ImagePart

PNG = "image/png"
_PILLOW_FORMATS = {
    "image/jpeg": "JPEG",
    PNG: "PNG",
    "image/gif": "GIF",
    "image/webp": "WEBP",
}
_ALIASES = {"image/jpg": "image/jpeg"}
# A progressive JPEG has about ten scans. Each costs a pass over every pixel and may take less than
# a hundred bytes of the file.
MAX_JPEG_SCANS = 50
_START_OF_SCAN = b"\xff\xda"
# All that Pillow's decoders have been seen to raise over broken files.
_BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    EOFError,
    struct.error,
)


@dataclass(frozen=True, kw_only=True)
class ImageLimits:
    """What one image may weigh: its file in bytes, and its pixels once decoded."""

    max_bytes: int
    max_pixels: int


def read_base64(text: str, limits: ImageLimits) -> bytes:
    """Decode standard base64, with nothing in it that does not belong. Raises `ImageError`."""
    if len(text) > (limits.max_bytes + 2) // 3 * 4:
        raise ImageError(f"larger than {limits.max_bytes} bytes")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ImageError("not valid base64") from None


def is_data_url(url: str) -> bool:
    """Whether the URL holds the image itself."""
    return url[:5].lower() == "data:"


def base64_of(url: str) -> str:
    """Return the base64 text that a `data:` URL holds. Raises `ImageError`."""
    head, _, text = url.partition(",")
    if not head.lower().endswith(";base64"):
        raise ImageError("a data: URL must have the form data:image/png;base64,...")
    return text


def check_image(data: bytes, limits: ImageLimits, declared: str | None = None) -> ImagePart:
    """Decode an image to the end and return it. Raises `ImageError`.

    `declared` is the media type that the caller gave, which must be right. Of an animation the
    first frame is returned, as a PNG: whatever reads the image next gets no frames to multiply.
    Takes up to a few seconds of one core, and memory for `max_pixels`.
    """
    if len(data) > limits.max_bytes:
        raise ImageError(f"larger than {limits.max_bytes} bytes")
    media_type = _sniff(data)
    if declared is not None and _ALIASES.get(declared.lower(), declared.lower()) != media_type:
        raise ImageError(f"the image is {media_type} and not of the provided media type")
    if media_type == "image/jpeg" and data.count(_START_OF_SCAN) > MAX_JPEG_SCANS:
        raise ImageError("a JPEG with too many scans")
    try:
        still = _decode(data, media_type, limits.max_pixels)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many_pixels(limits.max_pixels) from None
    except _BROKEN:
        raise ImageError(f"the {media_type} file is damaged or cut short") from None
    if still is None:
        return ImagePart(media_type, data)
    if len(still) > limits.max_bytes:
        raise ImageError(f"its first frame is larger than {limits.max_bytes} bytes")
    return ImagePart(PNG, still)


def _sniff(data: bytes) -> str:
    """Return the media type that the first bytes show."""
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return PNG
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    raise ImageError("not an image of a supported kind: JPEG, PNG, GIF or WebP")


def _decode(data: bytes, media_type: str, max_pixels: int) -> bytes | None:
    """Decode the whole image, or of an animation the first frame, and return that as a PNG."""
    with Image.open(BytesIO(data), formats=[_PILLOW_FORMATS[media_type]]) as image:
        # Opening has read the header and no pixel.
        if image.width * image.height > max_pixels:
            raise _too_many_pixels(max_pixels)
        image.load()
        # A JPEG with several pictures is a photo with a preview; every reader takes the first.
        if media_type == "image/jpeg" or not getattr(image, "is_animated", False):
            return None
        frame = BytesIO()
        image.save(frame, "PNG", compress_level=1)
        return frame.getvalue()


def _too_many_pixels(max_pixels: int) -> ImageError:
    return ImageError(f"more than {max_pixels} pixels")
