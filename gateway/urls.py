"""Every page that Django serves. `/v1` and the health pages are answered before Django."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from gateway import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.landing),
    path("control/v1/", include("gateway.control.urls")),
]
if settings.TANDEM.GATEWAY_ROLE != "api":
    urlpatterns.append(path("admin/", admin.site.urls))

handler400 = views.bad_request
handler404 = views.not_found
handler500 = views.server_error
