"""The admin site: teams and keys, money, the audit trail, and the model catalogue."""

from django.contrib import admin

from gateway.admin import (
    batches,
    catalogue,
    keys,
    ledger,
    mcp_servers,
    prices,
    requests,
    seals,
    teams,
)

__all__ = [
    "batches",
    "catalogue",
    "keys",
    "ledger",
    "mcp_servers",
    "prices",
    "requests",
    "seals",
    "teams",
]

admin.site.site_header = "Tandem"
admin.site.site_title = "Tandem"
admin.site.index_title = "Operate"
