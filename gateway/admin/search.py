"""The search over all tables, from anywhere: the first rows of each that an operator may see.

The theme's own reads and shows every row that matches, whichever are thousands.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib import admin
from django.http import HttpRequest

from gateway.admin.links import page_address
from gateway.admin.theme import SearchResult

_ROWS_OF_TABLE = 20


def find_rows(request: HttpRequest, term: str) -> list[SearchResult]:
    """Return the rows that a term finds, as the theme takes them."""
    return list(_found(request, term))


def _found(request: HttpRequest, term: str) -> Iterator[SearchResult]:
    for model, table in admin.site._registry.items():
        if not (table.get_search_fields(request) and table.has_view_permission(request)):
            continue
        rows, repeats = table.get_search_results(request, table.get_queryset(request), term)
        for row in (rows.distinct() if repeats else rows)[:_ROWS_OF_TABLE]:
            kind = str(model._meta.verbose_name).capitalize()
            yield SearchResult(str(row), kind, page_address(model, "change", row.pk), "data_object")
