"""Every table that the admin shows; importing this registers them with `django.contrib.admin`."""

from gateway.admin import (
    batches,
    catalogue,
    files,
    keys,
    ledger,
    mcp_servers,
    people,
    prices,
    requests,
    responses,
    seals,
    sign_ins,
    teams,
    work,
)

__all__ = [
    "batches",
    "catalogue",
    "files",
    "keys",
    "ledger",
    "mcp_servers",
    "people",
    "prices",
    "requests",
    "responses",
    "seals",
    "sign_ins",
    "teams",
    "work",
]
