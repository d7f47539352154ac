"""Reading a request's body and finding the model that it names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from gateway.cache_salt import cache_salt
from gateway.dialects.context import ParseContext
from gateway.dialects.unknown import UnknownFields, ignored_header
from gateway.http.body import check_content_encoding, check_content_type, decode_object
from gateway.http.consumer import ApiConsumer
from gateway.image_source import ImageSource
from gateway.models import Scope
from gateway.serving.models import find_model, parse_context
from inference.catalogue import ModelEntry
from inference.request import ImagePart, Lane

T = TypeVar("T")
_LARGE_BODY_BYTES = 256 * 1024
_IGNORED_FIELDS = b"tandem-ignored-fields"


class ModelsMixin(ApiConsumer):
    """For consumers whose requests name a model."""

    def find_model(self, name: str) -> ModelEntry:
        """Return the catalogue's entry. Raises MODEL_NOT_FOUND or PERMISSION."""
        return find_model(self.services.directory.catalogue, self.principal, name)


class PromptConsumer(ModelsMixin):
    """For consumers of calls that send a prompt. `ignored` names the fields without effect."""

    methods: ClassVar[tuple[str, ...]] = ("POST",)
    scope_needed: ClassVar[str | None] = Scope.INFERENCE
    ignored: tuple[str, ...] = ()

    async def aside(self, work: Callable[[], T]) -> T:
        """Work on the body: in a thread where it is so large that other streams would wait."""
        large = len(self.request.body) > _LARGE_BODY_BYTES
        return await asyncio.to_thread(work) if large else work()

    async def decode(
        self, check: Callable[[dict[str, Any], UnknownFields], tuple[T, tuple[str, ...]]]
    ) -> T:
        """Return the body as the dialect's `check` does, and note what of it has no effect.

        Raises INVALID_REQUEST.
        """
        check_content_type(self.request.header(b"content-type"))
        check_content_encoding(self.request.header(b"content-encoding"))
        unknown = self.services.config.UNKNOWN_FIELDS
        body, self.ignored = await self.aside(
            lambda: check(decode_object(self.request.body), unknown)
        )
        # A body that is read again for a fallback may be read otherwise.
        self.extra_headers = [each for each in self.extra_headers if each[0] != _IGNORED_FIELDS]
        if self.ignored:
            self.extra_headers.append((_IGNORED_FIELDS, ignored_header(self.ignored)))
        return body

    def context(self, entry: ModelEntry, lane: Lane = Lane.REALTIME) -> ParseContext:
        """Return what the body does not say."""
        return parse_context(
            entry,
            self.principal,
            request_id=self.request.id,
            deadline_s=time.time() + self.services.config.REQUEST_TIMEOUT_S,
            lane=lane,
            cache_salt=cache_salt(self.principal.team_id),
        )

    async def images(self, entry: ModelEntry, sources: Sequence[ImageSource]) -> list[ImagePart]:
        """Return the images, fetched. A model that sees nothing gets a note instead of them."""
        if not entry.vision or not sources:
            return []
        return await self.services.images.load(sources)
