"""The pages about requests and money that people open, each with every filter it has."""

from __future__ import annotations

from datetime import timedelta

from tests.many_requests import COMMON_MODEL, RARE_MODEL, Filled


def control_pages(filled: Filled) -> dict[str, str]:
    """Return the control API's pages, by what they are."""
    month = f"{filled.now - timedelta(days=30):%Y-%m-%dT%H:%M:%SZ}"
    half = f"{filled.now - timedelta(days=180):%Y-%m-%dT%H:%M:%SZ}"
    queries = [
        "",
        "?page=40",
        "?page=10&page_size=100",
        *(f"?status={status}" for status in ("running", "completed", "failed", "cancelled")),
        *(f"?type={type_}" for type_ in ("standalone", "stream", "batch")),
        *(f"?model={model}" for model in (COMMON_MODEL, RARE_MODEL, "unknown")),
        *(f"?key_id={key}" for key in (filled.common_key, filled.rare_key)),
        f"?created_after={month}",
        f"?created_before={half}",
        f"?created_after={half}&created_before={month}&page=40",
        f"?status=failed&model={RARE_MODEL}",
        f"?status=cancelled&key_id={filled.rare_key}",
        "?status=failed&type=batch",
        f"?type=batch&model={RARE_MODEL}",
        f"?type=stream&model={COMMON_MODEL}&key_id={filled.common_key}&created_before={half}",
    ]
    paths = [f"activity{query}" for query in queries]
    paths += ["activity/models", f"activity/{filled.request_id}"]
    paths += [f"usage/{kind}?days={days}" for kind in ("daily", "summary") for days in (30, 365)]
    paths += [f"usage/daily?days=365&key_id={filled.common_key}&model={COMMON_MODEL}"]
    paths += ["billing/summary?days=365", "billing/transactions?limit=100"]
    paths += ["billing/transactions?limit=100&starting_after=5000"]
    return {path: f"/control/v1/{path}" for path in paths}


def admin_pages(filled: Filled) -> dict[str, str]:
    """Return the admin's lists and pages, by what they are."""
    month = f"{filled.now - timedelta(days=30):%Y-%m-%dT%H:%M}"
    half = f"{filled.now - timedelta(days=180):%Y-%m-%dT%H:%M}"
    requests = [
        "",
        "?p=20",
        *(f"?status__exact={status}" for status in ("running", "completed", "failed")),
        "?within=hour",
        "?within=month",
        f"?since={month}",
        f"?since={half}&until={month}",
        *(f"?team={team}" for team in (filled.big_team, filled.departed_team, filled.small_team)),
        *(f"?model={model}" for model in (COMMON_MODEL, "delta", RARE_MODEL, "unknown")),
        f"?team={filled.small_team}&status__exact=failed&model={COMMON_MODEL}&within=month",
        f"?status__exact=failed&model={RARE_MODEL}",
        f"?q=msg_{filled.request_id}",
    ]
    entries = ["", "?p=20", f"?team={filled.big_team}", f"?team={filled.departed_team}"]
    entries += [f"?kind__exact={kind}" for kind in ("usage", "topup", "refund")]
    entries += [f"?q={filled.request_id}", f"?since={half}&until={month}"]
    paths = [f"requestrecord/{query}" for query in requests]
    paths += [f"ledgerentry/{query}" for query in entries]
    paths += ["auditseal/", f"requestrecord/{filled.request_id}/change/"]
    own = ["requests/", f"requests/{filled.request_id}/"]
    addresses = [*(f"jobs/{path}" for path in paths), *own]
    return {f"admin: {address}": f"/admin/{address}" for address in addresses}
