"""The engines that are alive, as their heartbeats tell, and what operators tell them.

They are not in the database: an engine says every half second that it is there, and is gone when it
no longer does.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_http_methods

from gateway.admin.heartbeats import read_reports
from gateway.admin.screens.starting import starting
from gateway.admin.screens.view import Subject, note, screen, show
from gateway.admin.waiting import Look
from inference.models import Model
from inference.transport.connection import Unreachable, connect_sync
from inference.transport.frames import EngineReport, EngineState, Order
from inference.transport.keys import Keys
from inference.transport.orders import send_order
from jobs.models import Worker

MAY_SEE = "jobs.view_worker"
MAY_ORDER = "jobs.change_worker"


class Explained(NamedTuple):
    """What an order is called on its button, and what it brings about."""

    verb: str
    icon: str
    effect: str
    done: str


ORDERS = {
    Order.DRAIN: Explained(
        "Drain",
        "do_not_disturb_on",
        "It takes no more requests and no more work, and what it runs ends in its own time. Then "
        "it waits, loaded, until it is told to resume or to reload.",
        "is draining",
    ),
    Order.RESUME: Explained(
        "Resume", "play_circle", "It takes requests and work again, at once.", "takes requests"
    ),
    Order.RELOAD: Explained(
        "Reload",
        "restart_alt",
        "It takes no more requests, ends those that callers wait for, and gives rows of batches "
        "and background responses back to the queue; none is lost. Then its process ends and is "
        "started anew, with the catalogue as it is by then. Other models of the same process are "
        "started anew with it.",
        "is told to reload",
    ),
}


class Engine(NamedTuple):
    """An engine as its row shows it."""

    report: EngineReport
    age: timedelta
    orders: list[tuple[Order, Explained]]

    @property
    def running(self) -> int:
        """How many requests and rows it runs."""
        return self.report.in_flight + self.report.work_in_flight


@screen(MAY_SEE)
@require_GET
def overview(request: HttpRequest) -> HttpResponse:
    """List the engines, and the models that none serves, with the commands that start one."""
    found = _reports(request)
    may_order = request.user.has_perm(MAY_ORDER)
    enabled = list(Model.objects.filter(enabled=True).values_list("id", flat=True))
    unserved = list(Look(found, frozenset(enabled)).unserved()) if found is not None else []
    return show(
        request,
        "admin/engines.html",
        "Engines",
        engines=[_engine(report, may_order=may_order) for report in found or ()],
        is_known=found is not None,
        unserved=unserved,
        commands=starting([wait.model for wait in unserved]),
        may_order=may_order,
    )


def _engine(report: EngineReport, *, may_order: bool) -> Engine:
    possible: tuple[Order, ...] = ()
    if report.state is EngineState.READY:
        possible = (Order.DRAIN, Order.RELOAD)
    elif report.state is EngineState.DRAINING:
        possible = (Order.RESUME, Order.RELOAD)
    age_s = max(0, int(time.time() - report.started_at_s))
    orders = [(order, ORDERS[order]) for order in possible if may_order]
    return Engine(report, timedelta(seconds=age_s), orders)


@screen(MAY_SEE, MAY_ORDER)
@require_http_methods(["GET", "POST"])
def order(request: HttpRequest, engine_id: UUID, order: str) -> HttpResponse:
    """Ask about an order, and give it once the operator has said yes."""
    wanted = _wanted(order)
    reports = _reports(request)
    if reports is None:
        return redirect("admin:engines")
    report = next((each for each in reports if each.engine_id == str(engine_id)), None)
    if report is None:
        messages.warning(request, "This engine is gone.")
        return redirect("admin:engines")
    if request.method == "POST":
        _give(request, report, wanted)
        return redirect("admin:engines")
    others = [
        each
        for each in reports
        if each.model == report.model
        and each.state is EngineState.READY
        and each.engine_id != report.engine_id
    ]
    return show(
        request,
        "admin/engine_order.html",
        f"{ORDERS[wanted].verb} an engine of {report.model}?",
        engine=_engine(report, may_order=True),
        explained=ORDERS[wanted],
        is_last=not others and wanted is not Order.RESUME,
        is_dangerous=wanted is not Order.RESUME,
    )


def _wanted(order: str) -> Order:
    try:
        return Order(order)
    except ValueError:
        raise Http404(f"there is no order {order}") from None


def _give(request: HttpRequest, report: EngineReport, wanted: Order) -> None:
    keys = Keys(settings.TANDEM.REDIS_PREFIX)
    try:
        with connect_sync(settings.REDIS_URL) as client:
            was_told = send_order(client, keys, report.engine_id, wanted)
    except Unreachable:
        messages.error(request, "Redis cannot be reached; the engine was told nothing.")
        return
    if not was_told:
        messages.warning(request, "This engine is gone.")
        return
    engine = f"engine of {report.model} on {report.host}"
    note(request, Subject(Worker, report.engine_id, engine), f"{ORDERS[wanted].verb}.")
    messages.success(request, f"The {engine} {ORDERS[wanted].done}.")


def _reports(request: HttpRequest) -> list[EngineReport] | None:
    """Return what the engines say; None, and a message, if Redis cannot be asked."""
    reports = read_reports()
    if reports is None:
        messages.error(request, "Redis cannot be reached, and so no engine can be seen.")
    return reports
