"""Requests whose bodies are files: they stay on the disk, whatever their size."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from typing import IO, Any, cast

from gateway.http.consumer import ApiConsumer
from gateway.http.daphne import StrictRequest
from gateway.http.request import ApiRequest
from gateway.http.slow_reader import Send


class UploadConsumer(ApiConsumer):
    """For bodies that do not go into memory: `upload` is the body, to be read from its beginning.

    Daphne has it in a file already and hands that over (see `StrictRequest`); from other servers it
    comes in messages, and is written to one here. The file is closed with the consumer.
    """

    upload: IO[bytes]

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Hand a message to its handler; after the last one the body is gone."""
        try:
            await super().dispatch(message)
        finally:
            if message["type"] == "http.disconnect" and hasattr(self, "upload"):
                self.upload.close()

    def _receive(self, message: dict[str, Any]) -> None:
        if not hasattr(self, "upload"):
            self.upload = _handed_over(self.base_send) or _new_file()
            self._size = self.upload.seek(0, os.SEEK_END)
        chunk = message.get("body", b"")
        self._size += len(chunk)
        if self._size <= self.max_body_bytes:
            self.upload.write(chunk)
        if not message.get("more_body", False):
            self.upload.seek(0)
            self.request = ApiRequest(self.scope)
            self._begin()


def _handed_over(send: Send) -> IO[bytes] | None:
    request = send.args[0] if isinstance(send, partial) and send.args else None
    return request.hand_over() if isinstance(request, StrictRequest) else None


def _new_file() -> IO[bytes]:
    return cast("IO[bytes]", tempfile.TemporaryFile())
