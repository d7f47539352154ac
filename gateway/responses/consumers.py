"""The consumers of stored responses: `/v1/responses/{id}` and what is below and beside it."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import msgspec

from gateway.dialects.responses.items import Item
from gateway.errors import OPENAI, Envelope
from gateway.http.consumer import ApiConsumer
from gateway.http.query import boolean, integer
from gateway.http.request import ApiRequest
from gateway.lists import listed
from gateway.models import Scope
from gateway.responses import feed, rows
from gateway.responses.answering import BackgroundConsumer
from gateway.responses.clients import said_to
from gateway.responses.paging import Page, decode_page
from inference.errors import ErrorCode, TandemError
from jobs import responses
from jobs.models import StoredResponse

_LISTED = 100
_LISTED_ITEMS = 20
_MAX_NUMBER = 10**9


class ListResponsesConsumer(ApiConsumer):
    """`GET /v1/responses`, which OpenAI does not have and sference has."""

    methods: ClassVar[tuple[str, ...]] = ("GET", "HEAD")
    scope_needed: ClassVar[str | None] = Scope.INFERENCE
    envelope: ClassVar[Envelope] = OPENAI

    async def handle(self, request: ApiRequest) -> None:
        """List the team's responses, or those of one of its streams."""
        query = dict(request.query)
        page = decode_page(query, _LISTED)
        found = await self.services.database.run(partial(self._read, page, query.get("stream_id")))
        shown = [said_to(request, rows.shown_in_list(row)) for row in found]
        await self.respond_json(_list(shown, page))

    def _read(self, page: Page, stream_id: str | None) -> list[StoredResponse]:
        team_id = self.principal.team_id
        stream = stream_id and rows.stream_of(team_id, stream_id, "stream_id")
        return rows.listed(team_id, page, stream or None)


class _OneResponse(BackgroundConsumer):
    """What is asked of one response. It is its team's: others are told that there is none."""

    async def find(self) -> StoredResponse:
        """Return the response that the path names. Raises NOT_FOUND."""
        return await self.services.database.run(
            partial(rows.find, self.principal.team_id, self.arguments["response_id"])
        )

    async def cancel(self, row: StoredResponse) -> StoredResponse:
        """Cancel a response that is made in the background; one that has ended stays as it is."""
        team_id = self.principal.team_id
        cancelled = await self.services.database.run(lambda: responses.cancel(str(row.pk), team_id))
        if cancelled is None:
            raise rows.not_found(self.arguments["response_id"])
        return cancelled


class ResponseConsumer(_OneResponse):
    """`GET /v1/responses/{id}`, also as a stream that is resumed."""

    methods = ("GET", "HEAD")

    async def handle(self, request: ApiRequest) -> None:
        """Show the response, or follow it."""
        query = dict(request.query)
        stream = boolean(query, "stream")
        after = integer(query, "starting_after", -1, at_least=-1, at_most=_MAX_NUMBER)
        row = await self.find()
        if not stream:
            await self.respond_response(row)
            return
        if not (row.background and row.streamed):
            raise TandemError(
                ErrorCode.INVALID_REQUEST,
                "This response cannot be streamed because it was not created with "
                "background=true and stream=true.",
                param="stream",
            )
        await self.follow(row, after)


class DeleteResponseConsumer(_OneResponse):
    """`DELETE /v1/responses/{id}`: cancels what runs, as sference means it, else deletes."""

    methods = ("DELETE",)

    async def handle(self, request: ApiRequest) -> None:
        """Answer with the response as it is then, and whether it is gone."""
        row = await self.find()
        if not rows.is_over(row):
            _check_background(row, "its connection is what cancels it")
            await self.respond_response(await self.cancel(row), deleted=False)
            return
        team_id = self.principal.team_id
        await self.services.database.run(lambda: responses.delete(str(row.pk), team_id))
        await self.respond_response(row, deleted=True)


class CancelResponseConsumer(_OneResponse):
    """`POST /v1/responses/{id}/cancel`: the same answer, however often it is called."""

    methods = ("POST",)

    async def handle(self, request: ApiRequest) -> None:
        """Cancel a background response, and answer with it."""
        row = await self.find()
        _check_background(row, "only one with background=true can be")
        await self.respond_response(await self.cancel(row))


class InputItemsConsumer(_OneResponse):
    """`GET /v1/responses/{id}/input_items`: all that it was made from, earlier responses too."""

    methods = ("GET", "HEAD")

    async def handle(self, request: ApiRequest) -> None:
        """List the items."""
        page = decode_page(dict(request.query), _LISTED_ITEMS)
        row = await self.find()
        items = await self.services.database.run(lambda: rows.asked(row))
        if page.newest_first:
            items.reverse()
        await self.respond_json(_list(_behind(items, page.after)[: page.limit + 1], page))


class EventsConsumer(ApiConsumer):
    """`GET /v1/responses/events`: what has ended in the background, and what ends next."""

    methods: ClassVar[tuple[str, ...]] = ("GET", "HEAD")
    scope_needed: ClassVar[str | None] = Scope.INFERENCE
    envelope: ClassVar[Envelope] = OPENAI

    async def handle(self, request: ApiRequest) -> None:
        """Answer with events; where there is none yet, wait for one as long as is asked."""
        wanted = feed.decode_wanted(dict(request.query))
        part = await self.services.feed.wait(self.principal.team_id, wanted)
        shown = {"object": "list", "data": part.events, "has_more": part.has_more}
        await self.respond_json(msgspec.json.encode(shown))


def _check_background(row: StoredResponse, why: str) -> None:
    if not row.background:
        raise TandemError(
            ErrorCode.INVALID_REQUEST, f"Cannot cancel a synchronous response: {why}."
        )


def _behind(items: list[Item], after: str | None) -> list[Item]:
    if after is None:
        return items
    for place, item in enumerate(items):
        if item["id"] == after:
            return items[place + 1 :]
    raise TandemError(
        ErrorCode.NOT_FOUND, f"after: there is no item with the id '{after}'", param="after"
    )


def _list(found: list[dict[str, Any]], page: Page) -> bytes:
    """Return a list in its envelope; one more than the page has means that there are more."""
    shown = found[: page.limit]
    return msgspec.json.encode(listed(shown, has_more=len(found) > page.limit))
