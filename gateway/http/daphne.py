"""Keeps Daphne from acting on what a request holds before the application has seen it."""

from __future__ import annotations

from typing import Any

from daphne import http_protocol
from daphne.http_protocol import WebRequest


class StrictRequest(WebRequest):  # type: ignore[misc]
    """A request whose body and headers only the application reads.

    Twisted would parse the forms that anybody posts, all at once: 30 MB of them hold every stream
    up for six seconds, and broken ones get an answer without a body or none at all. And Daphne
    would take where the application is mounted from anybody's header, and fail on a bad one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, parsePOSTFormSubmission=False, **kwargs)

    def process(self) -> Any:
        """Hand the request on."""
        self.requestHeaders.removeHeader(b"daphne-root-path")
        return super().process()


def be_strict() -> None:
    """Have Daphne make its requests so, from the next connection on; it has no setting for it."""
    http_protocol.WebRequest = StrictRequest
