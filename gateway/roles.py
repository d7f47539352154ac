"""What each role of operators may do. `gateway.migrations.0003_roles` makes them once.

A viewer sees everything but what requests say. An operator sees that, too, and runs the service:
teams, keys, limits, models, batches, engines; no money. Billing gives credit, sets prices, and says
what teams may spend. An owner does all that, and manages the operators' accounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

VIEWER, OPERATOR, BILLING, OWNER = "viewer", "operator", "billing", "owner"

_APPS = ("gateway", "jobs", "inference")
# What requests say: a viewer need not read it to see how they go.
_SAID = "jobs.view_requestbody"
RUNS = (
    *("gateway.add_team", "gateway.change_team", "gateway.delete_team"),
    *("gateway.add_apikey", "gateway.change_apikey"),
    *("jobs.change_batch", "jobs.change_storedresponse", "jobs.change_work", "jobs.change_worker"),
    *("inference.add_model", "inference.change_model", "inference.delete_model"),
    *("inference.add_upstream", "inference.change_upstream", "inference.delete_upstream"),
    *("inference.add_mcpserver", "inference.change_mcpserver", "inference.delete_mcpserver"),
    _SAID,
)
MONEY = (
    *("gateway.change_spending", "jobs.add_ledgerentry"),
    *("jobs.add_price", "jobs.change_price", "jobs.delete_price"),
)
PEOPLE = (
    *("auth.view_user", "auth.add_user", "auth.change_user", "auth.delete_user"),
    *("auth.view_group", "auth.add_group", "auth.change_group", "auth.delete_group"),
    *("admin.view_logentry", "axes.view_accesslog"),
    *("axes.view_accessattempt", "axes.delete_accessattempt"),
)


def permissions_of_roles(existing: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return each role's permissions, as `app.codename`, of those that exist."""
    there = frozenset(existing)
    views = {name for name in there if name.partition(".")[0] in _APPS and ".view_" in name} - {
        _SAID
    }
    wanted = {
        VIEWER: views,
        OPERATOR: views | set(RUNS),
        BILLING: views | set(MONEY),
        OWNER: views | set(RUNS) | set(MONEY) | set(PEOPLE),
    }
    return {role: there & frozenset(names) for role, names in wanted.items()}
