"""What is done to a team by its own people."""

from __future__ import annotations

from django.db import transaction

from gateway.models import Team
from gateway.nudges import nudge_on_commit
from inference.transport.nudge import Topic


def set_zero_data_retention(team: Team, enabled: bool) -> None:
    """Say whether what the team's requests say, and what is answered, must never be kept."""
    team.zero_data_retention = enabled
    with transaction.atomic():
        team.save(update_fields=["zero_data_retention"])
        nudge_on_commit(Topic.KEYS)
