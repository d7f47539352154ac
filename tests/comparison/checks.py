"""All that is compared, and how one check ends."""

from __future__ import annotations

from tests.comparison import answers, requests
from tests.comparison.server import Check, Lacks, Server

CHECKS = (*requests.CHECKS, *answers.CHECKS)


def outcome(check: Check, server: Server) -> str:
    """Return `yes`, or what was seen instead."""
    try:
        check.run(server)
    except Lacks as lacking:
        return str(lacking)
    return "yes"
