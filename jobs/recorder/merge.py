"""Makes one row of what is said about one request, and decides what is billed for it.

Pure: no database and no clock. Records may come in any order, more than once, or not at all; the
row is the same in the end (docs/decisions/0009 has the rules of billing, 0011 those of merging):

- Only the latest attempt known counts. An engine's word about an earlier one says no more than
  that an engine had the request.
- How a request ended is its gateway's to say, what it used its engine's; each fills in for the
  other. A failure outweighs whatever the other says: what failed is not billed.
- Of a request that went to its fallback the fallback is the model, by whose price it is billed.
- A row is settled when all that must speak have spoken, or were waited for long enough. Once it is
  settled and billed it never changes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from inference.events import Usage
from inference.request import Lane
from inference.transport.records import FINAL, Admitted, Closed, Completed, Ending, Record
from jobs.bulk import bytea
from jobs.ledger import Charge
from jobs.models import RequestRecord
from jobs.pricing import PriceList, cost_micros
from jobs.recorder.rows import Row

Status = RequestRecord.Status

_BILLED = frozenset({Ending.FINISHED, Ending.CANCELLED, Ending.TIMEOUT})
_STATUSES = {Ending.FINISHED: Status.COMPLETED, Ending.CANCELLED: Status.CANCELLED}
_LIMITS = {field.name: field.max_length for field in RequestRecord._meta.fields if field.max_length}
_IGNORED_LIMIT = 200
_LARGEST = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def request_id(record: Record) -> str:
    """Return the record's request id in canonical form. Raises `ValueError`."""
    return str(UUID(record.request_id))


def begin(request_id: str, record: Record) -> Row:
    """Return the row of a request of which nothing else is known; `record` is not yet merged."""
    at_s = record.taken_at_s if isinstance(record, Completed) else record.at_s
    return Row(id=request_id, created_at=_time(at_s))


def merge(row: Row, record: Record) -> bool:
    """Add to a row what a record says; False if the row takes nothing any more.

    Raises `ValueError` or `OverflowError` for what cannot be: years past 9999, say.
    """
    if row.settled_at is not None and row.cost_micros is not None:
        return False
    match record:
        case Admitted():
            _admitted(row, record)
        case Completed():
            _completed(row, record)
        case Closed():
            _closed(row, record)
    if not is_complete(row):
        # It was settled because no engine had taken it, and now an engine says that it had.
        row.settled_at = None
    return True


def is_complete(row: Row) -> bool:
    """Whether everybody who must has spoken about the request."""
    if row.deadline_at is None or row.closed_at is None:
        return False
    return row.engine_ended_at is not None or not _was_taken(row)


def give_up(row: Row) -> None:
    """Say what can be said of a request whose gateway or engine has not spoken, and never will."""
    if not row.ending:
        _end(row, Ending.GATEWAY_LOST, Ending.GATEWAY_LOST, "The gateway ended without a word.")


def charge(row: Row, prices: PriceList) -> Charge | None:
    """Return what to post for a request about which nothing more will come; None for no entry.

    There is none if no engine took it, and if nobody has said whose request it was: Redis has lost
    what both its gateway and its engine wrote, and they are dead.
    """
    if not row.team_id or row.key_id is None:
        return None
    if row.closed_at is not None and not _was_taken(row):
        return None
    usage = _usage(row)
    reason = _why_waived(row)
    price = None if reason else prices.at(row.model, row.created_at)
    return Charge(
        request_id=row.id,
        team_id=row.team_id,
        key_id=row.key_id,
        model=row.model,
        lane=row.lane,
        usage=usage,
        cost_micros=cost_micros(price, usage, Lane(row.lane)),
        price_id=price.id if price else None,
        reason=reason,
    )


def _why_waived(row: Row) -> str:
    """Return why nothing is asked for what was used, or nothing."""
    if row.ending not in _BILLED:
        return f"waived: {row.ending}"
    if row.engine_ended_at is None and row.ending != Ending.FINISHED:
        # Its gateway knows how it ended, but not what it used until then.
        return f"waived: {Ending.ENGINE_LOST}"
    return ""


def _was_taken(row: Row) -> bool:
    return row.engine_id is not None or row.taken_at is not None


def _usage(row: Row) -> Usage:
    return Usage(
        prompt_tokens=row.input_tokens,
        cached_tokens=row.cached_tokens,
        cache_written_tokens=row.cache_written_tokens,
        output_tokens=row.output_tokens,
        thinking_tokens=row.thinking_tokens,
    )


def _admitted(row: Row, record: Admitted) -> None:
    requested = record.requested_model or record.model
    # Whoever has told of an attempt has said whose it is, unless it was an end that names none.
    told = row.model if row.attempts else ""
    _name_models(row, requested, told or requested)
    row.created_at = _time(record.at_s)
    row.deadline_at = _time(record.deadline_s)
    row.team_id, row.team_name = record.team_id, _text("team_name", record.team_name)
    row.key_id, row.key_name = record.key_id, _text("key_name", record.key_name)
    row.client = _text("client", record.client)
    row.address = _text("address", record.address)
    row.trace_id = _text("trace_id", record.trace_id)
    row.session_id = _text("session_id", record.session_id)
    row.type = _type(record).value
    row.batch_id, row.stream_id = record.batch_id, record.stream_id
    row.custom_id = _text("custom_id", record.custom_id)
    row.dialect, row.lane = record.dialect, record.lane
    row.streamed = record.stream
    row.max_tokens = min(record.max_tokens, _LARGEST)
    row.ignored_fields = [_clean(name, _IGNORED_LIMIT) for name in record.ignored]
    row.body_bytes = record.body_bytes
    row.body_digest = bytea(record.body_digest)
    _reach(row, record.attempts, record.model)


def _completed(row: Row, record: Completed) -> None:
    taken_at = _time(record.taken_at_s)
    row.taken_at = max(taken_at, row.taken_at or taken_at)
    if row.deadline_at is None:
        row.created_at = min(row.created_at, taken_at)
        row.team_id, row.key_id = record.team_id, record.key_id
        row.lane = record.lane
    # Records count attempts from 0, rows say how many there were.
    if not _reach(row, record.attempt + 1, record.model) or row.engine_ended_at is not None:
        return
    row.engine_id, row.engine_host = record.engine_id, _text("engine_host", record.host)
    if row.closed_at is None:
        row.first_token_at = _time_or_none(record.first_token_at_s)
    if record.ending not in FINAL:
        return
    row.engine_ended_at = _time(record.ended_at_s)
    _use(row, record.usage)
    if row.closed_at is None or _outweighs(record.ending, row.ending):
        _end(row, record.ending, record.detail, record.message)


def _closed(row: Row, record: Closed) -> None:
    at = _time(record.at_s)
    if row.deadline_at is None:
        row.created_at = min(row.created_at, at)
    _reach(row, record.attempts, record.model)
    row.closed_at = at
    row.engine_id = row.engine_id or record.engine_id
    row.first_token_at = _time_or_none(record.first_token_at_s)
    row.answer_digest = bytea(record.answer_digest)
    if row.engine_ended_at is None:
        _use(row, record.usage)
    if not _outweighs(row.ending, record.ending):
        _end(row, record.ending, record.detail, record.message)


def _reach(row: Row, attempts: int, model: str) -> bool:
    """Note an attempt, and forget what was said about earlier ones; False if it is one of them."""
    if attempts > row.attempts:
        # Without an admission it is not known which model was asked for.
        requested = (row.requested_model or row.model) if row.deadline_at is not None else ""
        _name_models(row, requested, model or row.model)
        row.attempts = attempts
        row.engine_id, row.engine_host, row.engine_ended_at = None, "", None
        if row.closed_at is None:
            row.first_token_at = None
            _use(row, Usage(prompt_tokens=0, cached_tokens=0, output_tokens=0))
            row.status, row.ending, row.detail, row.error = Status.RUNNING.value, "", "", ""
    # An end that names no model is that of the one model that all attempts had.
    row.model = row.model or model
    return attempts == row.attempts


def _name_models(row: Row, requested: str, model: str) -> None:
    row.model = model
    row.requested_model = requested if requested != model else ""


def _outweighs(one: str, other: str) -> bool:
    """Whether one ending is a failure and the other is not."""
    return bool(one) and one not in _BILLED and other in _BILLED


def _end(row: Row, ending: Ending, detail: str, error: str) -> None:
    row.status = _STATUSES.get(ending, Status.FAILED).value
    row.ending = ending.value
    row.detail, row.error = _text("detail", detail), _text("error", error)


def _use(row: Row, usage: Usage) -> None:
    if not 0 <= usage.cached_tokens + usage.cache_written_tokens <= usage.prompt_tokens:
        # The ledger would refuse it, when it is too late to put the record aside.
        raise ValueError(f"parts of a prompt are more than it is: {usage}")
    row.input_tokens = usage.prompt_tokens
    row.cached_tokens = usage.cached_tokens
    row.cache_written_tokens = usage.cache_written_tokens
    row.output_tokens = usage.output_tokens
    row.thinking_tokens = usage.thinking_tokens


def _type(record: Admitted) -> RequestRecord.Type:
    if record.batch_id is not None:
        return RequestRecord.Type.BATCH
    return RequestRecord.Type.STANDALONE if record.stream_id is None else RequestRecord.Type.STREAM


def _text(field: str, text: str) -> str:
    return _clean(text, _LIMITS[field])


def _clean(text: str, limit: int) -> str:
    """Return what PostgreSQL takes of a text that a caller may have chosen."""
    return text[:limit].replace("\0", "")


def _time(at_s: float) -> datetime:
    return _EPOCH + timedelta(seconds=at_s)


def _time_or_none(at_s: float | None) -> datetime | None:
    return None if at_s is None else _time(at_s)
