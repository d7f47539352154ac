"""Where an image of a request comes from, before anybody has fetched or decoded it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSource:
    """One image that a body names: either a `url`, or base64 `data` with its `media_type`.

    `path` is the dotted path of the source in the body; errors about the image name it.
    """

    path: str
    url: str | None = None
    media_type: str | None = None
    data: str | None = None
