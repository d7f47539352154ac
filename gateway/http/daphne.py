"""Keeps Daphne from acting on what a request holds before the application has seen it."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import IO, Any
from urllib.parse import unquote

from daphne import http_protocol
from daphne.http_protocol import WebRequest

IsUpload = Callable[[str, str], bool]
"""Whether a request's body stays on the disk, by its path and method."""


class StrictRequest(WebRequest):  # type: ignore[misc]
    """A request whose body and headers only the application reads.

    Twisted would parse the forms that anybody posts, all at once: 30 MB of them hold every stream
    up for six seconds, and broken ones get an answer without a body or none at all. And Daphne
    would take where the application is mounted from anybody's header, and fail on a bad one.

    Twisted writes large bodies to a file, but Daphne reads all of it into memory at once. An
    upload's body is kept from it, and handed to the application as the file that it is.
    """

    is_upload: IsUpload
    content: IO[bytes]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, parsePOSTFormSubmission=False, **kwargs)
        self._upload: IO[bytes] | None = None

    def process(self) -> Any:
        """Hand the request on."""
        self.requestHeaders.removeHeader(b"daphne-root-path")
        path = unquote(self.path.decode("latin-1"))
        if self.is_upload(path, self.method.decode("latin-1")):
            self._upload, self.content = self.content, BytesIO()
        return super().process()

    def hand_over(self) -> IO[bytes] | None:
        """Return an upload's body, once; it is the caller's to close."""
        upload, self._upload = self._upload, None
        return upload


def be_strict(is_upload: IsUpload) -> None:
    """Have Daphne make its requests so, from the next connection on; it has no setting for it."""
    StrictRequest.is_upload = staticmethod(is_upload)
    http_protocol.WebRequest = StrictRequest
