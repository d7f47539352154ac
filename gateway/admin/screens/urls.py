"""Where the operator's own pages are, among those of the site: `admin:NAME`."""

from __future__ import annotations

from django.urls import URLPattern, path

from gateway.admin.screens import batch_page, first_steps, key_views, playground, request_page

PAGES: list[URLPattern] = [
    path("start/", first_steps.page, name="first_steps"),
    path("requests/", request_page.find, name="find_request"),
    path("requests/<str:request_id>/", request_page.one, name="request_page"),
    path("requests/<str:request_id>/body.json", request_page.body, name="request_body"),
    path("playground/", playground.page, name="playground"),
    path("session-keys/open/", key_views.open_key, name="open_session_key"),
    path("session-keys/close/", key_views.close_key, name="close_session_key"),
    path("batches/new/", batch_page.new, name="new_batch"),
    path("batches/<str:batch_id>/", batch_page.one, name="batch_page"),
    path("batches/<str:batch_id>/cancel/", batch_page.cancel, name="cancel_batch"),
    path(
        "batches/<str:batch_id>/results.jsonl",
        batch_page.lines,
        {"completed": True},
        name="batch_results",
    ),
    path(
        "batches/<str:batch_id>/errors.jsonl",
        batch_page.lines,
        {"completed": False},
        name="batch_errors",
    ),
]
