"""The pages of the admin that are no table's, below the site's address and in its namespace."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from gateway.admin import engines, two_factor
from gateway.admin.screens.urls import PAGES as SCREENS

PAGES: list[URLPattern | URLResolver] = [
    *SCREENS,
    path("engines/", engines.overview, name="engines"),
    path("engines/<uuid:engine_id>/<str:order>/", engines.order, name="engine_order"),
    path("two-factor/", two_factor.enrol, name="two_factor"),
    path("two-factor/off/", two_factor.remove, name="two_factor_off"),
]
