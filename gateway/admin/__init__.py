"""The admin site: teams and keys, money, the audit trail, and the model catalogue."""

from django.contrib import admin

from gateway.admin import catalogue, keys, ledger, prices, requests, seals, teams

__all__ = ["catalogue", "keys", "ledger", "prices", "requests", "seals", "teams"]

admin.site.site_header = "Tandem"
admin.site.site_title = "Tandem"
admin.site.index_title = "Operate"
