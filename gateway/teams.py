"""What is done to a team by its own people, and what it may spend."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction

from gateway.models import Team
from gateway.nudges import nudge_on_commit
from inference.transport.nudge import Topic
from jobs.quota.holds import Terms


def set_zero_data_retention(team: Team, enabled: bool) -> None:
    """Say whether what the team's requests say, and what is answered, must never be kept."""
    team.zero_data_retention = enabled
    with transaction.atomic():
        team.save(update_fields=["zero_data_retention"])
        nudge_on_commit(Topic.KEYS)


def spending_terms(team_ids: Iterable[int]) -> dict[int, Terms]:
    """Return what each of these teams may spend, for the work that waits; those that exist."""
    rows = Team.objects.filter(pk__in=list(team_ids))
    names = ("prepaid", "daily_spend_cap_micros", "monthly_spend_cap_micros")
    return {
        team_id: Terms(prepaid=prepaid, daily_cap_micros=daily, monthly_cap_micros=monthly)
        for team_id, prepaid, daily, monthly in rows.values_list("pk", *names)
    }
