"""Every route of the control API, below `/control/v1/`. All but the document need a key."""

from __future__ import annotations

from django.urls import path

from gateway.control.activity import ActivityDetailView, ActivityModelsView, ActivityView
from gateway.control.billing import BillingSummaryView, TopUpsView, TransactionsView
from gateway.control.document import DocumentView
from gateway.control.keys import KeysView, KeyView
from gateway.control.teams import TeamView
from gateway.control.usage import UsageDailyView, UsageSummaryView

ROUTES = [
    path("activity", ActivityView.as_view()),
    path("activity/models", ActivityModelsView.as_view()),
    path("activity/<str:request_id>", ActivityDetailView.as_view()),
    path("usage/daily", UsageDailyView.as_view()),
    path("usage/summary", UsageSummaryView.as_view()),
    path("billing/summary", BillingSummaryView.as_view()),
    path("billing/transactions", TransactionsView.as_view()),
    path("billing/topups", TopUpsView.as_view()),
    path("auth/api-keys", KeysView.as_view()),
    path("auth/api-keys/<uuid:key_id>", KeyView.as_view()),
    path("teams/me", TeamView.as_view()),
    path("openapi.json", DocumentView.as_view()),
]

# A slash at the end means the same, and is never redirected: that would lose a body.
urlpatterns = [*ROUTES, *(path(f"{route.pattern}/", route.callback) for route in ROUTES)]
