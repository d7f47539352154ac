"""One request in whole: what happened to it when, what it said, what it cost, and why it failed."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from gateway.admin.links import page_address
from gateway.admin.screens import conversation, reasons, repeat, timeline
from gateway.admin.screens.bill import bill_of
from gateway.admin.screens.found import Found, find_request, place_of
from gateway.admin.screens.said import Said, Sources, said_by
from gateway.admin.screens.view import screen, show
from gateway.admin.transcript import without_images
from gateway.admin.waiting import for_work
from gateway.control.answers import render_body, render_error, render_result
from gateway.models import ApiKey, Team
from gateway.request_ids import parse_request_id
from jobs.models import RequestRecord, StoredResponse, Work

_FAILURES = 20
_SHOWN_CHARS = 200
# What was said has a place of its own.
_NOT_IN_ROW = {"answer", "body", "echo", "events", "items", "request"}


@screen("jobs.view_requestrecord")
def find(request: HttpRequest) -> HttpResponse:
    """Lead to what an id names; without one, show the latest failures."""
    asked = request.GET.get("q", "").strip()
    if asked and (place := place_of(asked)):
        return redirect(place)
    failed = RequestRecord.objects.filter(status=RequestRecord.Status.FAILED)
    return show(
        request,
        "gateway/find.html",
        "Find a request",
        asked=asked[:_SHOWN_CHARS],
        is_id=parse_request_id(asked) is not None,
        failures=failed.order_by("-created_at", "-id")[:_FAILURES],
    )


@screen("jobs.view_requestrecord")
def one(request: HttpRequest, request_id: str) -> HttpResponse:
    """Show one request, by its id with or without what the APIs write before it."""
    found = find_request(parse_request_id(request_id))
    if found is None:
        return redirect(f"{reverse('admin:find_request')}?{urlencode({'q': request_id})}")
    may = request.user.has_perm
    return show(
        request,
        "gateway/request.html",
        f"Request {found.id}",
        found=found,
        facts=_facts(found),
        links=_links(request, found),
        moments=_moments(found),
        phases=timeline.phases_of(found.record, timezone.now()) if found.record else [],
        failure=_failure(found),
        wait=for_work([found.work]).get(found.work.pk) if found.work else None,
        bill=bill_of(found) if may("jobs.view_ledgerentry") else None,
        told=_told(request, found) if may("jobs.view_requestbody") else None,
        row=_row(found),
    )


@screen("jobs.view_requestrecord", "jobs.view_requestbody")
def body(request: HttpRequest, request_id: str) -> HttpResponse:
    """Send the request's JSON as a file, as it came."""
    found = find_request(parse_request_id(request_id))
    said = _said(found) if found else Said()
    if found is None or said.body is None:
        raise Http404(f"nothing is kept of {request_id}")
    return HttpResponse(
        said.body,
        content_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{_file_name(found)}"'},
    )


def _facts(found: Found) -> list[tuple[str, Any]]:
    """Return who asked, and on what it ran; what is not known is left out."""
    record, work = found.record, found.work
    facts: list[tuple[str, Any]] = [
        ("Model", found.model),
        ("Asked for", record and record.requested_model),
        ("Dialect", found.dialect),
    ]
    if record is not None:
        facts += [
            ("Team", record.team_name or f"team {record.team_id}"),
            ("Key", record.key_name),
            ("Client", record.client),
            ("Address", record.address),
            ("Session", record.session_id),
            ("Trace", record.trace_id),
            ("Lane", record.lane),
            ("Streamed", "yes" if record.streamed else "no"),
            ("Max tokens", f"{record.max_tokens:,}" if record.max_tokens else ""),
            ("Ignored fields", ", ".join(record.ignored_fields)),
            ("Engine", record.engine_host and f"{record.engine_host} ({record.engine_id})"),
            ("Attempts", record.attempts),
        ]
    if work is not None:
        facts += [
            ("Line of the batch", work.line),
            ("Custom id", work.custom_id),
            ("Attempts", None if record else work.attempts),
            ("Engines that died under it", work.deaths),
            ("Times it gave its place", work.preemptions),
            ("Deadline", f"{work.deadline_at:%Y-%m-%d %H:%M:%S} UTC"),
        ]
    return [(name, value) for name, value in facts if value]


def _links(request: HttpRequest, found: Found) -> list[tuple[str, str]]:
    """Return the ways to what belongs to it, for who may go them."""
    rows: list[tuple[str, type[Model], Any]] = [
        ("Team", Team, found.team_id),
        ("Key", ApiKey, found.key_id),
        ("Audit trail", RequestRecord, found.record and found.record.pk),
        ("Work", Work, found.work and found.work.pk),
        ("Stored response", StoredResponse, found.response and found.response.pk),
    ]
    may = request.user.has_perm
    links = [
        (name, page_address(model, "change", key))
        for name, model, key in rows
        if key and may(f"{model._meta.app_label}.view_{model._meta.model_name}")
    ]
    if found.batch is not None and may("jobs.view_batch"):
        links.insert(0, ("Batch", reverse("admin:batch_page", args=[found.batch.pk])))
    return links


def _moments(found: Found) -> list[timeline.Moment]:
    if found.record is not None:
        return timeline.moments_of(found.record)
    return timeline.moments_of_work(found.work) if found.work else []


def _failure(found: Found) -> dict[str, str]:
    """Return what the caller was told of a failure, and what lies behind it."""
    record, work = found.record, found.work
    if record is not None:
        told = render_error(record)
        return {
            "error": record.error if told else "",
            "detail": record.detail,
            "why": reasons.explain(reasons.end_of(record)),
            "caller_saw": conversation.pretty(told) if told else "",
        }
    if work is None or not (reason := reasons.reason_of_row(work.outcome, work.error_code)):
        return {}
    why = reasons.explain(reasons.end_of_work(work))
    return {"error": work.error_message, "detail": reason, "why": why}


def _said(found: Found) -> Said:
    return said_by(Sources(found.team_id, found.record, found.work, found.response))


def _told(request: HttpRequest, found: Found) -> dict[str, Any]:
    """Return prompt and answer, readable and raw, and the command that asks again."""
    said = _said(found)
    told: dict[str, Any] = {"why_not": said.why_not}
    sent = render_body(said.body)
    if sent is not None and said.body is not None:
        base_url = request.build_absolute_uri("/").rstrip("/")
        told |= {
            "turns": conversation.turns_of(sent),
            "tools": conversation.tools_of(sent),
            "settings": conversation.settings_of(sent),
            "raw_body": conversation.pretty(without_images(sent)),
            "curl": repeat.curl(base_url, found.dialect, said.body, _file_name(found)),
        }
    if said.answer is not None:
        told["answer"] = conversation.answer_pieces(said.answer)
        told["calls"] = [piece.label for piece in told["answer"] if piece.kind == "call"]
        if found.record is not None:
            answer = render_result(found.record, tuple(said.answer))
            told["raw_answer"] = conversation.pretty(answer)
    return told


def _file_name(found: Found) -> str:
    return f"request-{found.id}.json"


def _row(found: Found) -> str:
    """Return the row of the trail, or of the work or the stored response, as JSON."""
    row = found.record or found.work or found.response
    assert row is not None
    hidden = row.get_deferred_fields() | _NOT_IN_ROW
    names = [field.attname for field in row._meta.concrete_fields]
    return conversation.pretty(
        {name: _readable(getattr(row, name)) for name in names if name not in hidden}
    )


def _readable(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return msgspec.to_builtins(value)
