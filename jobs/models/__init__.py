"""What lasts: money, the trail of every request, and the work that takes its time.

Teams, keys and models are named by their ids and not by foreign keys: what they did must be told
long after they are gone, and this package knows nothing of the gateway that owns them.
"""

from jobs.models.audit import AuditSeal, KeyUse, RequestBody, RequestRecord, UsageDay
from jobs.models.batches import Batch
from jobs.models.files import StoredFile
from jobs.models.minutes import LatencyMinute, RequestMinute
from jobs.models.money import Account, LedgerEntry, Price
from jobs.models.responses import ResponseFeed, ResponseStream, StoredResponse
from jobs.models.work import Work, Worker

__all__ = [
    "Account",
    "AuditSeal",
    "Batch",
    "KeyUse",
    "LatencyMinute",
    "LedgerEntry",
    "Price",
    "RequestBody",
    "RequestMinute",
    "RequestRecord",
    "ResponseFeed",
    "ResponseStream",
    "StoredFile",
    "StoredResponse",
    "UsageDay",
    "Work",
    "Worker",
]
