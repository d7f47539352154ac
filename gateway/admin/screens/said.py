"""Finds what a request said and what was answered, wherever it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec
from django.conf import settings
from django.utils import timezone

from gateway.accounting.credentials import hide_in_body
from gateway.models import Team
from inference.errors import TandemError
from inference.fold import KeptPart
from jobs.files import numbered_lines, open_bytes
from jobs.models import Batch, RequestRecord, StoredResponse, Work
from jobs.packing import unpack, unpack_answer
from jobs.reports import kept_body


class Said(NamedTuple):
    """The request's JSON as it was sent, but for other services' keys, and the parts of its answer.

    None: not kept; `why_not` says why there is no body, if there is a reason to tell.
    """

    body: bytes | None = None
    answer: Sequence[KeptPart] | None = None
    why_not: str = ""


class Sources(NamedTuple):
    """Where it may be: what is known of one request."""

    team_id: int
    record: RequestRecord | None
    work: Work | None
    response: StoredResponse | None


class _Line(msgspec.Struct):
    body: msgspec.Raw = msgspec.Raw(b"")


_decode_line = msgspec.json.Decoder(_Line).decode


def said_by(found: Sources) -> Said:
    """Return what is kept. Of a team with zero data retention nothing is shown, wherever it is."""
    if Team.objects.filter(pk=found.team_id, zero_data_retention=True).exists():
        return Said(why_not="The team has zero data retention.")
    said = _of_trail(found.record)
    if found.response is not None:
        said = _either(said, _of_response(found.response))
    if found.work is not None:
        said = _either(said, _of_work(found.work))
    return said._replace(body=said.body and hide_in_body(said.body))


def _either(one: Said, other: Said) -> Said:
    return Said(
        one.body or other.body,
        other.answer if one.answer is None else one.answer,
        one.why_not or other.why_not,
    )


def _of_trail(record: RequestRecord | None) -> Said:
    days = settings.TANDEM.BODY_RETENTION_DAYS
    if record is None:
        return Said()
    # What is over its time may not have been deleted yet.
    if record.created_at <= timezone.now() - timedelta(days=days):
        return Said(why_not=f"Kept for {days} days." if days else "This install keeps none.")
    kept = kept_body(record.pk)
    return Said(kept.body, kept.answer)


def _of_response(response: StoredResponse) -> Said:
    answer = unpack_answer(bytes(response.answer)).kept if response.answer else None
    return Said(unpack(bytes(response.body)) or None, answer)


def _of_work(work: Work) -> Said:
    answer = unpack_answer(bytes(work.answer)).kept if work.answer else None
    if work.batch is None:
        return Said(None, answer)
    if work.batch.form != Batch.Form.OPENAI:
        return Said(None, answer, "The rows of this batch were sent inline, and are not kept.")
    body = _line_of(work.batch, work.line)
    return Said(body, answer, "" if body else "The batch's input file is gone.")


def _line_of(batch: Batch, wanted: int) -> bytes | None:
    """Return the body of a batch's row from its input file; None if the file is gone."""
    if batch.input_file is None:
        return None
    try:
        with open_bytes(batch.input_file) as opened:
            for number, line in numbered_lines(opened):
                if number == wanted:
                    return bytes(_decode_line(line).body) or None
    except (TandemError, msgspec.DecodeError):
        pass
    return None
