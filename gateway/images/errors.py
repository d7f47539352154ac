"""Why an image is not taken."""

from __future__ import annotations


class ImageError(Exception):
    """An image that is not taken. The message goes to the caller, after the path of the source.

    So it holds nothing that the caller did not give: no resolved address, no library's own words.
    """
