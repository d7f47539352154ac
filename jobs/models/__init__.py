"""What lasts: money, and the trail of every request.

Teams, keys and models are named by their ids and not by foreign keys: what they did must be told
long after they are gone, and this package knows nothing of the gateway that owns them.
"""

from jobs.models.audit import AuditSeal, KeyUse, RequestBody, RequestRecord, UsageDay
from jobs.models.money import Account, LedgerEntry, Price

__all__ = [
    "Account",
    "AuditSeal",
    "KeyUse",
    "LedgerEntry",
    "Price",
    "RequestBody",
    "RequestRecord",
    "UsageDay",
]
