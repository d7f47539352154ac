"""What keeps one team's prefix cache apart from another's."""

from __future__ import annotations

import hmac

from django.conf import settings


def cache_salt(team_id: int) -> str:
    """Return a team's salt: not to be guessed, and the same in every process.

    Otherwise the time to the first token would tell one team what another has asked.
    """
    secret = settings.SECRET_KEY.encode()
    return hmac.digest(secret, b"cache-salt:%d" % team_id, "sha256").hex()
