"""`/v1/streams`, as sference's clients call it, and `/v1/auth/me`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import msgspec

from gateway.dialects.validation import invalid_at
from gateway.errors import OPENAI, Envelope
from gateway.http.body import check_content_encoding, check_content_type, decode_object
from gateway.http.consumer import ApiConsumer
from gateway.http.request import ApiRequest
from gateway.models import Scope
from gateway.responses import rows, streams

_CREATED = 201
_NAME_CHARS = 200
_STATUSES = ("archived", "cancelled")


class _StreamsConsumer(ApiConsumer):
    scope_needed: ClassVar[str | None] = Scope.INFERENCE
    envelope: ClassVar[Envelope] = OPENAI

    def read(self) -> dict[str, Any]:
        """Return the body. Raises INVALID_REQUEST."""
        check_content_type(self.request.header(b"content-type"))
        check_content_encoding(self.request.header(b"content-encoding"))
        return decode_object(self.request.body)


class CreateStreamConsumer(_StreamsConsumer):
    """`POST /v1/streams`."""

    methods: ClassVar[tuple[str, ...]] = ("POST",)

    async def handle(self, request: ApiRequest) -> None:
        """Make a stream."""
        body = self.read()
        if body.get("window", streams.WINDOW) != streams.WINDOW:
            raise invalid_at("window", f"should be '{streams.WINDOW}'")
        name = _name(body.get("name"))
        principal = self.principal
        made = await self.services.database.run(
            lambda: streams.shown_whole(streams.create(principal.team_id, principal.key_id, name))
        )
        headers = [(b"content-type", b"application/json"), self.identity]
        await self.respond(_CREATED, msgspec.json.encode(made), headers)


class ListStreamsConsumer(_StreamsConsumer):
    """`GET /v1/streams`."""

    async def handle(self, request: ApiRequest) -> None:
        """List the team's streams, newest first."""
        found = await self.services.database.run(partial(streams.listed, self.principal.team_id))
        items = [streams.shown(stream) for stream in found]
        await self.respond_json(msgspec.json.encode({"object": "list", "items": items}))


class StreamConsumer(_StreamsConsumer):
    """`GET` and `PATCH /v1/streams/{id}`."""

    methods: ClassVar[tuple[str, ...]] = ("GET", "HEAD", "PATCH")

    async def handle(self, request: ApiRequest) -> None:
        """Show a stream with its counts, after the change if there is one."""
        team_id, stream_id = self.principal.team_id, self.arguments["stream_id"]
        find = partial(rows.stream_of, team_id, stream_id)
        if request.method == "PATCH":
            body = self.read()
            name = None if body.get("name") is None else _name(body["name"])
            status = body.get("status")
            if status is not None and status not in _STATUSES:
                raise invalid_at("status", "should be 'archived' or 'cancelled'")
            find = partial(streams.change, team_id, stream_id, name=name, status=status)
        shown = await self.services.database.run(lambda: streams.shown_whole(find()))
        await self.respond_json(msgspec.json.encode(shown))


class MeConsumer(ApiConsumer):
    """`GET /v1/auth/me`: whose key it is."""

    envelope: ClassVar[Envelope] = OPENAI

    async def handle(self, request: ApiRequest) -> None:
        """Show the key and its team; a key is what stands for a user here."""
        principal = self.principal
        me = {
            "id": principal.key_id,
            "username": principal.key_name,
            "role": "admin" if Scope.ADMIN in principal.scopes else "member",
            "scopes": sorted(principal.scopes),
            "team": {"id": principal.team_id, "name": principal.team_name},
        }
        await self.respond_json(msgspec.json.encode(me))


def _name(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= _NAME_CHARS or "\0" in value:
        raise invalid_at("name", f"should be a text of 1 to {_NAME_CHARS} characters")
    return value
