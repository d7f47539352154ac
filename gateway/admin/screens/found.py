"""Finds all that is known of one request: by its id, wherever it is in its life."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from django.db.models import Model
from django.urls import reverse

from gateway.request_ids import parse_request_id
from jobs.models import Batch, RequestRecord, StoredResponse, Work


class Found(NamedTuple):
    """One request. At least one of the first three is there."""

    record: RequestRecord | None
    work: Work | None
    response: StoredResponse | None
    batch: Batch | None

    @property
    def _first(self) -> RequestRecord | Work | StoredResponse:
        first = self.record or self.work or self.response
        assert first is not None
        return first

    @property
    def id(self) -> UUID:
        """The request's id."""
        return self._first.pk

    @property
    def team_id(self) -> int:
        """Whose it is."""
        return self._first.team_id

    @property
    def key_id(self) -> UUID | None:
        """What key it came with."""
        return self._first.key_id

    @property
    def model(self) -> str:
        """Who was asked."""
        return self._first.model

    @property
    def dialect(self) -> str:
        """How it asked."""
        told = self.record or self.work
        return told.dialect if told else "responses"

    @property
    def status(self) -> str:
        """Where it is in its life, in the words of the first that knows."""
        if self.record is not None:
            return self.record.status
        if self.work is not None:
            return self.work.outcome or self.work.state
        return self.response.status if self.response else ""

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected of it."""
        if self.record is not None:
            return self.record.settled_at is not None
        if self.work is not None:
            return self.work.state == Work.State.DONE
        return self.response is None or self.response.status not in StoredResponse.OPEN


def find_request(wanted: UUID | None) -> Found | None:
    """Return what is known of a request: in the trail, at work, or stored as a response."""
    if wanted is None:
        return None
    record = RequestRecord.objects.filter(pk=wanted).first()
    work = Work.objects.defer("request").select_related("batch__input_file")
    row = work.filter(pk=wanted).first()
    response = StoredResponse.objects.defer("events", "items").filter(pk=wanted).first()
    if not (record or row or response):
        return None
    batch = row.batch if row else None
    if batch is None and record is not None and record.batch_id is not None:
        batch = Batch.objects.filter(pk=record.batch_id).first()
    return Found(record, row, response, batch)


def place_of(text: str) -> str | None:
    """Return the address of the page about what an id names: a request or a batch."""
    wanted = parse_request_id(text)
    if wanted is None:
        return None
    pages: dict[type[Model], str] = {
        RequestRecord: "request_page",
        Work: "request_page",
        Batch: "batch_page",
        StoredResponse: "request_page",
    }
    for model, page in pages.items():
        if model._default_manager.filter(pk=wanted).exists():
            return reverse(f"admin:{page}", args=[wanted])
    return None
